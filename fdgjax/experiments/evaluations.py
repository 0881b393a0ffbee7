"""How an experiment is evaluated, from its config."""

from collections.abc import Sequence

import numpy as np

from fdgjax.config import Config
from fdgjax.contract import Method
from fdgjax.data.federation import Partition
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.domains import Domains
from fdgjax.engine import Execution
from fdgjax.engine.batched_hyper import BatchedHyper
from fdgjax.engine.robustness.attacks import ATTACKS
from fdgjax.evaluation.evaluating import Evaluation, of_numbers, of_predictions, of_representations
from fdgjax.evaluation.probabilities import Figuring
from fdgjax.evaluation.probability_figures import FIGURES, names_in
from fdgjax.evaluation.selection import SELECTIONS
from fdgjax.evaluation.tally import EvaluationSettings
from fdgjax.experiments.draft import Draft
from fdgjax.methods.parts.adaptations import SCOPES
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


def make_evaluation(draft: Draft, method: Method | BatchedHyper) -> Evaluation:
    """How the method's states are evaluated; `method` is the draft's, or those of a family."""
    config, data, parts, model = draft.config, draft.data, draft.parts, draft.setup.model
    how = evaluation_settings(config, draft.setup.execution)
    if draft.entry.unlabelled:
        return of_representations(
            method,
            model,
            data,
            probing=config.probe,
            targets=[one.target for one in parts],
            encodings=draft.encodings,
            seeds=draft.seeds,
            batch_size=how.batch_size,
            execution=how.execution,
        )
    if data.numeric:
        return of_numbers(method, model, data, how, parts=parts, label_scales=draft.label_scales)
    check_figured(config, data, parts)
    figuring = Figuring(
        names_in(config.figures),
        config.figures_sensitivity,
        config.figures_resamples,
        decides=not draft.protocol.labelled_server,
        threshold=config.figures_threshold,
    )
    return of_predictions(
        method,
        model,
        data,
        how,
        seeds=draft.seeds,
        attacked=lookup("attack.kind", config.attack.kind, ATTACKS).wanted,
        figuring=figuring if figuring.names else None,
        parts=parts,
    )


def evaluation_settings(config: Config, execution: Execution) -> EvaluationSettings:
    """What of the evaluation follows from the config."""
    return EvaluationSettings(
        config.eval_batch_size,
        config.adaptation.batch_size or config.batch_size,
        execution,
        SCOPES[config.adaptation.scope],
    )


def check_figured(config: Config, data: Domains, parts: Sequence[Partition]) -> None:
    """Raises a `UserError` for figures of probabilities that the data do not allow: of two classes for more of them, by
    a threshold of clients without labels, or a selection by one that has no value on the held-out samples."""
    names, classes = names_in(config.figures), len(data.class_names)
    for name in names:
        if FIGURES[name].binary and classes != 2:
            raise UserError(
                f"config.figures got '{name}', which needs two classes, but {config.data.name} has {classes}; expected "
                f"any of {', '.join(key for key, figure in FIGURES.items() if not figure.binary)}"
            )
        unlabelled = PROTOCOLS[config.data.protocol].labelled_server
        if FIGURES[name].thresholded and classes == 2 and unlabelled and not config.figures_threshold:
            raise UserError(
                f"config.figures got '{name}', whose threshold is fixed by clients' labels, which they do not have in "
                f"the protocol '{config.data.protocol}'; expected config.figures_threshold, or any of "
                f"{', '.join(key for key, figure in FIGURES.items() if not figure.thresholded)}"
            )
    for key in ("figures_threshold", "figures_sensitivity"):
        if names and getattr(config, key) and classes != 2:
            raise UserError(
                f"config.{key} got {getattr(config, key)}, a threshold of two classes, but {config.data.name} has "
                f"{classes}; expected 0"
            )
    rule, _, name = config.selection.partition(":")
    if not name:
        return
    for part in parts:
        pooled = SELECTIONS[config.selection].needs[0].startswith("id_all")
        rows = [np.concatenate(part.validation)] if pooled else part.validation
        counts = [np.bincount(data.labels[own], minlength=classes) for own in rows]
        if not any(map(FIGURES[name].defined, counts)):
            whose = "the clients' held-out samples together do not" if pooled else "no client's held-out samples"
            raise UserError(
                f"config.selection got '{config.selection}', but {whose} have the classes that {name} needs; expected "
                f"{rule}, or more samples in config.data.validation"
            )
