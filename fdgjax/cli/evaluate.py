"""How well a trained run, or an export, does on labelled samples of one's own.

    fdgjax evaluate RUN|EXPORT --data DATA [--client K] [--group GROUP] [--json FILE] [--csv FILE]

DATA has a folder of images for each class, `<class>/*`, or one for each domain with these in it, `<domain>/<class>/*`;
for a model of tables (or arrays) it is a file, or a folder with a file for each domain, with the column of the labels.
The classes are named as the model names them, and some may be missing. The command prints accuracy, precision, recall
and F1 of each class, and the confusion matrix, with 95 % intervals (Wilson), and AUROC, log loss and other figures of
the probabilities, with 95 % intervals (bootstrap, and Wilson of sensitivity and specificity). Where samples are
grouped, as by the run's `config.data.group`, intervals count groups. The run's own records stay as they are.
"""

import argparse
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fdgjax.cli.predict import add_run, check_output, chosen_of
from fdgjax.config.data_keys import DataConfig
from fdgjax.data.groups import NoGroupError
from fdgjax.data.sources.loading import TABLE_DATA
from fdgjax.deploy.finished_model import refuse_deployment
from fdgjax.evaluation.probabilities import figures_of_samples
from fdgjax.evaluation.probability_figures import FIGURES, THRESHOLD
from fdgjax.inference.class_figures import Evaluated, Share, as_json, class_figures
from fdgjax.inference.images import predict_decoded
from fdgjax.inference.labelled_samples import LabelledSamples, labelled_samples
from fdgjax.inference.predictor import described, open_predictor
from fdgjax.inference.program_use import SAMPLES
from fdgjax.run.console import Console, between
from fdgjax.run.records import Workdir, description_of
from fdgjax.run.reopen import config_of
from fdgjax.utils.command import command, parser_of
from fdgjax.utils.errors import UserError, printable
from fdgjax.utils.files import csv_text, write_json, write_text
from fdgjax.utils.words import words_of

LOGGER = logging.getLogger(__name__)
MOST_COLUMNS = 12
"""The most classes whose confusion matrix is printed; of more, the most frequent confusions are."""
MOST_CONFUSIONS = 10


@command
def main(argv: Sequence[str]) -> int:
    """Evaluates the model; returns the exit status, 2 for a mistake in the input."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    args = parse(argv)
    for file in filter(None, (args.json, args.csv)):
        check_output(file, args.run, [args.data])
    if args.json and args.csv and args.json.resolve() == args.csv.resolve():
        raise UserError(f"--json and --csv both got {args.csv}; expected two files; choose another name for one")
    refuse_deployment(args.run)
    predictor = open_predictor(args.run, chosen_of(args))
    if predictor.numeric:
        raise UserError(
            f"{args.run} predicts numbers, and these are figures of classes; expected a model that classifies; fdgjax "
            "predict writes predictions beside which labels can be laid"
        )
    samples = grouped_samples(predictor.facts, args)
    warn_of_training_data(args.run, args.data)
    kept, probabilities, _ = predict_decoded(predictor, samples.pieces)
    labels, domains = samples.labels[kept], [samples.domains[place] for place in kept]
    groups = None if samples.groups is None else samples.groups[kept]
    found = class_figures(labels, probabilities.argmax(axis=1), predictor.class_names, domains, groups)
    figures = figures_by_domain(labels, domains, probabilities, predictor.facts.get(THRESHOLD), groups)
    skipped = sorted(set(samples.names) - {samples.names[place] for place in kept})
    console = Console()
    show(found, console, args, len(skipped), SAMPLES[described(predictor.facts)].many)
    if THRESHOLD in predictor.facts and len(predictor.class_names) == 2:
        at = f"p({printable(predictor.class_names[1])}) >= {predictor.facts[THRESHOLD]:.3f}"
        console.say(f"above: by the most probable class; below: by {at}, where a figure needs a decision")
    console.show(figures_table(figures))
    if args.json:
        about = {"model": dict(predictor.facts), "path": str(args.run), "data": str(args.data), "skipped": skipped}
        write_json(args.json, about | as_json(found) | {"figures": figures})
    if args.csv:
        write_text(args.csv, classes_csv(found))
    return 0


def grouped_samples(facts: Mapping[str, Any], args: argparse.Namespace) -> LabelledSamples:
    """The labelled samples, grouped as asked, else as the run's own, if these say their groups; raises like
    `labelled_samples`."""
    if args.group:
        return labelled_samples(facts, args.data, args.group)
    try:
        return labelled_samples(facts, args.data, facts.get("group", ""))
    except NoGroupError as error:
        LOGGER.warning(f"{error}; intervals count single samples, unlike the run's")
        return labelled_samples(facts, args.data)


def warn_of_training_data(run: Path, data: Path) -> None:
    """Says so where a run's folder is given with samples it was trained on; an export does not know where those lay."""
    if not Workdir(run).config.is_file():
        return
    own = config_of(run, needs_data=False).data
    trained, given = Path(own.dir).resolve(), data.resolve()
    inside = given.is_relative_to(trained) and given != trained
    begun = description_of(run)
    # The first domain is unseen where the config names none; of one that gave shots, some samples were trained on.
    target = "" if own.shots else begun.target if begun else own.target
    not_trained_on = {target, *words_of(own.excluded)} - {""}
    overlapping = own.dir and (inside or trained.is_relative_to(given))
    if overlapping and not (inside and not_trained_on & domains_named(own, trained, given)):
        unseen = f"; the domain that it has not seen is '{printable(target)}'" if target else ""
        LOGGER.warning(f"{printable(data)} has samples that the run was trained on, whose figures flatter it{unseen}")


def domains_named(own: DataConfig, trained: Path, given: Path) -> set[str]:
    """The names that may be a domain's of a path below a run's data: of its folders and its file, and, of a table, the
    domain whose file it is."""
    parts = given.relative_to(trained).parts
    names = {*parts, *(Path(part).stem for part in parts)}
    if own.name in TABLE_DATA:
        with contextlib.suppress(UserError):
            files = TABLE_DATA[own.name](own.dir).files
            names |= {domain for domain, file in files.items() if file.resolve() == given}
    return names


def figures_by_domain(
    labels: np.ndarray,
    domains: Sequence[str],
    probabilities: np.ndarray,
    threshold: float | None,
    groups: np.ndarray | None,
) -> dict[str, dict[str, Any]]:
    """The figures of probabilities of all samples, by name, and below `domains` of those of each domain. Those that
    need a threshold are left out for two classes without one."""
    found = figures_of_samples(labels, probabilities, threshold, groups)
    each = {
        name: figures_of_samples(labels[own], probabilities[own], threshold, None if groups is None else groups[own])
        for name in sorted(set(domains) - {""})
        if (own := np.array(domains) == name).any()
    }
    return {
        figure: own | {"domains": {name: one[figure] for name, one in each.items() if figure in one}}
        for figure, own in found.items()
    }


def figures_table(figures: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each figure, a column for all samples and for each domain."""
    names = list(dict.fromkeys(name for own in figures.values() for name in own["domains"]))
    table = Table("figure", "all", *map(printable, names))
    for figure, own in figures.items():
        cells = [own, *(own["domains"].get(name) for name in names)]
        shown = ["" if cell is None else f"{cell['value']:.3f}{between(cell['interval'])}" for cell in cells]
        table.add_row(FIGURES[figure].title, *shown)
    return table


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = parser_of("evaluate", __doc__)
    add_run(parser, "RUN|EXPORT", "folder of a run, with its checkpoints, or of an export")
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DATA", help="[<domain>/]<class>/*, a table, or a folder of tables")
    add(
        "--group",
        default="",
        metavar="GROUP",
        help="like config.data.group: a table's column, or a regular expression for file names",
    )
    add("--json", type=Path, metavar="FILE", help="all figures as JSON")
    add("--csv", type=Path, metavar="FILE", help="a line for each class, with its row of the confusion matrix")
    return parser.parse_args(argv[1:])


def show(found: Evaluated, console: Console, args: argparse.Namespace, skipped: int, samples: str) -> None:
    """Prints the figures; `samples`: what samples are called."""
    left_out = f", {skipped:,} skipped" if skipped else ""
    accuracy = f"{in_words(found.accuracy)} of {found.accuracy.n:,} {samples}"
    console.say(
        f"{printable(args.run)} on {printable(args.data)}: accuracy {accuracy}{left_out}; means over classes: "
        f"{', '.join(f'{name} {value:.3f}' for name, value in found.macro.items())}"
    )
    table = Table("class", "n", "recall", "predicted", "precision", "F1")
    for one in found.classes:
        cells = (str(one.recall.n), in_words(one.recall), str(one.precision.n), in_words(one.precision))
        table.add_row(printable(one.name), *cells, "" if one.f1 is None else f"{one.f1:.3f}")
    console.show(table)
    if found.domains:
        domains = Table("domain", "n", "accuracy")
        for name, own in found.domains.items():
            domains.add_row(printable(name), str(own.n), in_words(own))
        console.show(domains)
    console.show(confusion_table(found))


def in_words(one: Share) -> str:
    """A share with its interval: `0.875 (0.64 to 0.97)`; empty for none."""
    return "" if one.value is None else f"{one.value:.3f}{between(one.interval)}"


def confusion_table(found: Evaluated) -> Table:
    """The confusion matrix, or, of many classes, the most frequent confusions."""
    names = [printable(one.name) for one in found.classes]
    if len(names) <= MOST_COLUMNS:
        table = Table("true \\ predicted", *names)
        for name, row in zip(names, found.confusion, strict=True):
            table.add_row(name, *(str(count) if count else "" for count in row))
        return table
    table = Table("true", "predicted as", "images", title="most frequent confusions")
    wrong = found.confusion - np.diag(np.diag(found.confusion))
    for place in np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]:
        i, j = np.unravel_index(place, wrong.shape)
        if wrong[i, j]:
            table.add_row(names[i], names[j], str(wrong[i, j]))
    return table


def classes_csv(found: Evaluated) -> str:
    """The figures of each class as CSV."""
    columns = [f"{name}{end}" for name in ("recall", "precision") for end in ("", "_low", "_high")]
    names = [printable(one.name) for one in found.classes]
    rows: list[list[Any]] = [["class", "n", "predicted", *columns, "f1", *(f"as({name})" for name in names)]]
    for name, one, row in zip(names, found.classes, found.confusion, strict=True):
        figures = [*cells_of(one.recall), *cells_of(one.precision), one.f1]
        written = ["" if value is None else f"{value:.6f}" for value in figures]
        rows.append([name, one.recall.n, one.precision.n, *written, *row.tolist()])
    return csv_text(rows)


def cells_of(one: Share) -> Iterator[Any]:
    """A share, and the ends of its interval."""
    yield one.value
    yield from one.interval or (None, None)
