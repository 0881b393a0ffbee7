"""The model card of an exported classifier: its training, its figures, and what it must not be used for."""

from collections.abc import Mapping
from importlib import metadata
from types import MappingProxyType
from typing import Any, NamedTuple

from fdgjax.evaluation.metrics import Record, last_evaluated, short_names
from fdgjax.evaluation.probability_figures import FIGURES, THRESHOLD
from fdgjax.evaluation.selection import SELECTIONS, reported
from fdgjax.experiments import Outline
from fdgjax.inference.classifier import UNSEEN, Classifier
from fdgjax.inference.left_out import LeftOut
from fdgjax.inference.predictor import described
from fdgjax.inference.program_use import SAMPLES, answers_of
from fdgjax.inference.safeguards_text import safeguards_said
from fdgjax.inference.tensors import facts_of
from fdgjax.inference.trained_run import unstacked
from fdgjax.models.pretrained.weight_files import weights_in_words
from fdgjax.utils.errors import printable
from fdgjax.utils.markdown import markdown_table
from fdgjax.utils.words import words_of

CARD = """# {method} on {dataset}: {what}

Exported by fdgjax {version}: the model of {whose}, after round {round} of {rounds}, seed {seed}.

| file | what it holds |
|---|---|
| `model.safetensors` | the variables by name, frozen ones included; metadata: {named}what a sample is, config |
| `program.bin` | a StableHLO program, `jax.export`: {sample} in, {answers} out |
| `model.json` | {facts} |

## Use

With flatbuffers, which `jax.export` reads programs with, JAX {jax} or a version of the six months after it, and nothing
else. For longer `jax.export` does not promise to read a program: export it anew, or use that version:

{use}

## Data and protocol

- Data set: `{dataset}`; domains: {domains}.
- {labels}.
- Protocol `{protocol}`{unseen}; {clients} clients; `{method}`, network `{network}`.{start}

## Figures

{figures}

{selection}

## {heading}

{said}

## When not to trust it

{safeguards}

## What it must not be used for

- Domains other than those above: how it does on them was not measured. {warning}
- {others}
- Decisions about people, or where an error does harm, without a test on data of that use.
- As anonymous data: a trained model may reveal what it was trained on; federated training alone does not prevent that.
"""


class Words(NamedTuple):
    """The card's words for what is predicted. what: the model. facts: of `model.json`. named: of the tensors'
    metadata. labels: what they are. heading, said: the section on answers. others: a warning."""

    what: str
    facts: str
    named: str
    labels: str
    heading: str
    said: str
    others: str


NO_SETS = "Of predicted numbers neither intervals nor distances from the training samples are computed."


def class_words(classifier: Classifier) -> Words:
    """The words for a classifier."""
    return Words(
        what=f"a classifier of {len(classifier.class_names)} classes",
        facts="classes in the order of the probabilities, what a sample is, temperature, quantiles of sets",
        named="classes, ",
        labels=f"Classes: {', '.join(f'`{printable(name)}`' for name in classifier.class_names)}",
        heading="Probabilities",
        said=probabilities_said(classifier),
        others="Samples of other classes: it names one of its own for any sample.",
    )


def number_words(classifier: Classifier) -> Words:
    """The words for a regression."""
    name, scale = printable(classifier.class_names[0]), classifier.label_scale
    assert scale is not None, "a regression standardises its labels"
    return Words(
        what=f"a regression of {name}",
        facts="what a sample is, and a prediction",
        named="",
        labels=f"Predicted: `{name}`, of mean {scale.mean:.6g} and deviation {scale.deviation:.6g} in training",
        heading="Predictions",
        said=(
            "Numbers in the label's unit, `[batch, 1]`: the program multiplies the network's output by that deviation "
            "and adds that mean."
        ),
        others="Numbers beyond those that it was trained on: how it does there was not measured.",
    )


def card_of(
    classifier: Classifier, finished: bool, left_out: LeftOut = MappingProxyType({}), deployed: bool = False
) -> str:
    """The card as Markdown.

    Args:
      classifier: what is exported.
      finished: whether its run is finished.
      left_out: figures of domains that were unseen by runs with the same settings.
      deployed: whether it is the single model that a deployment left.
    """
    import jax

    config, data = classifier.outline.config, classifier.outline.data
    facts, excluded = facts_of(classifier), words_of(config.data.excluded)
    samples = SAMPLES[described(facts)]
    unseen = classifier.client == UNSEEN
    return CARD.format(
        method=config.method.name,
        dataset=printable(config.data.name),
        **(number_words if classifier.label_scale else class_words)(classifier)._asdict(),
        answers=answers_of(facts).answers,
        version=metadata.version("fdgjax"),
        whose=classifier.whose,
        round=classifier.trained.round,
        rounds=config.rounds,
        seed=classifier.trained.seed,
        jax=jax.__version__,
        sample=samples.words,
        use=samples.use(facts),
        domains=", ".join(f"`{printable(name)}`" for name in data.domain_names if name not in excluded),
        protocol=config.data.protocol,
        unseen=f", unseen domain `{printable(data.target)}`" if data.target else "",
        clients=data.clients,
        network=config.model.name,
        start=f"\n- Starts from {weights_in_words(start)}." if (start := config.model.pretrained) else "",
        figures=measured_of(classifier),
        selection=selection_of(classifier, finished),
        safeguards=NO_SETS
        if classifier.label_scale
        else safeguards_said(classifier, left_out, samples.many, measurable=not deployed),
        warning=warning_of(classifier.outline, unseen),
    )


def measured_of(classifier: Classifier) -> str:
    """The figures of the model that is exported: those of the round, or, of one client's model, that client's own."""
    record = last_evaluated(up_to(classifier))
    if classifier.client != UNSEEN:
        value = record.get("client_accuracy", {}).get(str(classifier.client))
        if value is None:
            return "None: the run has no figure of this client's model alone."
        said = f"Measured after round {record['round']}, on the client's own held-out samples alone."
        return figure_table(said, {"accuracy (`client_accuracy`)": value})
    models = len(unstacked(classifier.models))
    several = (
        f"\n\nThe run measured its {models} models one by one, and `ood` is the mean of their figures. This export "
        "averages their probabilities, which is another model, usually a better one: measure it with `fdgjax evaluate`."
    )
    return figures_of(record) + (several if models > 1 else "")


def figures_of(record: Mapping[str, Any]) -> str:
    """The headline figures as a table."""
    rows = {f"{short} (`{key}`)": record[key] for key, short in short_names().items() if key in record}
    further = {f"worst_domain_{name}": f"worst domain {figure.title}" for name, figure in FIGURES.items()}
    further[THRESHOLD] = (
        "threshold of the second class, by config.figures_threshold or the clients' validation data, at which F1, "
        "balanced accuracy, sensitivity and specificity are; `fdgjax predict` writes the most probable class"
    )
    rows |= {f"{title} (`{key}`)": record[key] for key, title in further.items() if key in record}
    rows |= {f"on `{name}`": value for name, value in record.get("per_domain_accuracy", {}).items()}
    rows |= {f"RMSE on `{name}`": value for name, value in record.get("per_domain_rmse", {}).items()}
    if not rows:
        return "None: no round was evaluated."
    return figure_table(f"Measured after round {record['round']}.", rows)


def figure_table(said: str, figures: Mapping[str, float]) -> str:
    """Figures by their names, below a line that says of what they are."""
    rows = [[name, f"{value:.3f}"] for name, value in figures.items()]
    return "\n".join([said, "", *markdown_table(["figure", "value"], rows, right=["value"])])


def up_to(classifier: Classifier) -> list[Record]:
    """The records of the rounds up to the exported one."""
    return [record for record in classifier.trained.records if record["round"] <= classifier.trained.round]


def selection_of(classifier: Classifier, finished: bool) -> str:
    """Whether the exported round is the one that the run's rule chooses, and what that rule looks at."""
    trained, rule = classifier.trained, classifier.outline.config.selection
    looks_at = f"The rule looks at {SELECTIONS[rule].looks_at}."
    if not trained.records:  # beside a node's model
        return f"The round was chosen by the run's rule `{rule}`. {looks_at}"
    chosen = reported(trained.records, rule).get("round")
    is_chosen = chosen == trained.round or (chosen is None and rule == "last")
    other = "" if is_chosen else f": that is round {chosen}" if chosen else ": no round was evaluated yet"
    said = f"Round {trained.round} is {'' if is_chosen else 'not '}the one that the run's rule `{rule}` chooses"
    return f"{said}{other}. {looks_at}" + ("" if finished else " The run is not finished.")


def probabilities_said(classifier: Classifier) -> str:
    """Whether the probabilities are calibrated."""
    if classifier.temperature == 1:
        tried = f" (no temperature could be fitted to {classifier.fitted_to:,} validation samples)"
        not_calibrated = f"not calibrated{tried if classifier.fitted_to else ''}"
        return (
            f"As the network gives them: they are {not_calibrated}, and usually too large on domains it has not seen."
        )
    return (
        f"Divided by the temperature {classifier.temperature:.4f}, fitted to {classifier.fitted_to:,} validation "
        "samples of the training domains; on another domain they may still be too large."
    )


def warning_of(outline: Outline, unseen: bool) -> str:
    """The warning for a client's model, or for the model for unseen domains."""
    if not unseen:
        return "It is one client's model, made for that client's own data."
    adapted = " Its adaptation to the unseen domain is not part of the export." if outline.method.adapt else ""
    return "A figure on one unseen domain is no promise for another." + adapted
