"""Class and probabilities of images, or of rows of a table, predicted by a trained run or an export.

    fdgjax predict RUN|EXPORT SAMPLES... [--client K] [--round last|selected|N] [--out FILE.csv] [--calibrated]
    fdgjax predict RUN SAMPLES... --coverage 0.9 --refuse-above 95%

SAMPLES are image files, or folders, which are searched with their subfolders; for a model of tables, CSV or Parquet
files, or folders of them, with the columns that it was trained on in any order; for one of arrays, .npz or .npy. A run
predicts with its model for an unseen domain, or with that of --client; if the method has several for an unseen domain,
their probabilities are averaged. Images are decoded and resized like those that the model was trained on. The result is
CSV: file (and line, or index, of a row), class, and a column for the probability of each class; for a regression only
the `prediction`, in the label's unit. An image in a folder that cannot be read is named and skipped.

Further columns say when not to trust a prediction: `set`, the classes that hold the true one with the probability
--coverage for images like the clients' own (split conformal prediction; an image of another domain has no such
promise); `distance` of the image's features from the training images, about 1 for these; and `refused`, if
--refuse-above gives a distance, such as 1.5, or the share of the clients' own held-out images that are not refused,
such as 95%. `fdgjax train` keeps in the run's folder what they are computed from; for another run, another round or a
client's model, --coverage and --refuse-above measure it on the run's data. An export has sets and no distances.

--adapt adapts the model to all SAMPLES, without labels, before it predicts them: as the run was tested
(`config.adaptation`, or the method's own way), or by a KIND: statistics, tent, shot or t3a. It suits many images of one
new domain. Sets and distances are of the model that was trained, and are left out; the temperature of --calibrated
was fitted for that model, too, and is used unchanged.
"""

import argparse
import contextlib
import logging
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fdgjax.deploy.finished_model import refuse_deployment
from fdgjax.evaluation.conformal import prediction_sets
from fdgjax.inference.adapting import OF_RUN, adapted_predictor
from fdgjax.inference.classifier import Chosen
from fdgjax.inference.images import Predictions, predict_decoded
from fdgjax.inference.new_samples import NewSamples, samples_at
from fdgjax.inference.predictor import Predictor, described, open_predictor
from fdgjax.inference.program_use import SAMPLES
from fdgjax.inference.safeguards import COVERAGE
from fdgjax.run.records import Workdir
from fdgjax.utils.command import command, parser_of
from fdgjax.utils.errors import UserError, printable
from fdgjax.utils.files import csv_text, write_text

LOGGER = logging.getLogger("fdgjax")


@command
def main(argv: Sequence[str]) -> int:
    """Writes the predictions; returns the exit status, 2 for a mistake in the input."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    args = parse(argv)
    if args.out:
        check_output(args.out, args.run, args.samples)
    predictor, samples = opened(args)
    adapted = args.adapt is not None
    quantile = None if adapted or predictor.numeric else set_quantile(predictor, args)
    farthest = None if adapted else farthest_kept(predictor, args)
    found = predict_decoded(predictor, samples.pieces)
    text = predictions_csv(predictor.class_names, samples, found, quantile, farthest)
    if args.out:
        write_text(args.out, text)
        skipped = f", {len(samples.names) - len(found.kept):,} skipped" if len(found.kept) < len(samples.names) else ""
        refused = "" if farthest is None else f", {int(np.sum(refusals(found, farthest))):,} refused"
        print(
            f"{len(found.kept)} {SAMPLES[described(predictor.facts)].many} in {printable(args.out)}{skipped}{refused}"
        )
    else:
        print(text, end="")
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = parser_of("predict", __doc__)
    add_run(parser, "RUN|EXPORT", "folder of a run, with its checkpoints, or of an export")
    parser.add_argument(
        "samples", type=Path, nargs="+", metavar="SAMPLES", help="image files, tables or arrays, or folders"
    )
    add = parser.add_argument
    add("--coverage", type=share, metavar="P", help=f"probability that a set has the true class; else {COVERAGE}")
    add("--refuse-above", type=share_or_distance, metavar="X", help="a distance, or the share not refused, like 95%%")
    add("--adapt", nargs="?", const=OF_RUN, metavar="KIND", help="adapt the model to all SAMPLES first, see below")
    add("--out", type=Path, help="the CSV file; without it the text is printed")
    return parser.parse_args(argv[1:])


def add_run(parser: argparse.ArgumentParser, name: str, what: str) -> None:
    """Adds the arguments that choose a model: a folder, called `name` and explained by `what`, and which of a run's."""
    add = parser.add_argument
    add("run", type=Path, metavar=name, help=what)
    add(
        "--client",
        default="",
        metavar="K",
        help="that client's model, by its number, from 0, or its name; else the unseen domain's",
    )
    add("--seed", type=int, help="of a run with several seeds; else the first")
    add("--round", default="", metavar="R", help="last, selected or a number; else the selected one, if it is kept")
    add("--calibrated", action="store_true", help="with a temperature fitted on the run's validation data")
    add("--data_dir", default="", help="folder of the run's data for --calibrated, if it has moved since the run")


def check_output(file: Path, run: Path, given: Sequence[Path]) -> None:
    """Raises a `UserError` for a file of results that would replace what they are made from.

    Args:
      file: to be written.
      run: the folder of the run or export, which has records of its own, or a deployment's file.
      given: the samples' files and folders.
    """
    place = file.resolve()
    if place.is_dir():
        raise UserError(f"{file} is a folder; expected a file to be written, such as {file / 'predictions.csv'}")
    if not place.parent.is_dir():
        raise UserError(f"{file} lies in a folder that does not exist; expected an existing one; make {file.parent}")
    if place.is_relative_to(run.resolve()):
        raise UserError(
            f"{file} would lie among the records in {run}; expected a file elsewhere; choose another folder"
        )
    if any(place == path.resolve() or (place.exists() and place.is_relative_to(path.resolve())) for path in given):
        raise UserError(f"{file} is one of the samples, or lies among them; expected a new file; choose another name")


def chosen_of(args: argparse.Namespace) -> Chosen:
    """The model that the arguments of `add_run` choose."""
    return Chosen(args.client, args.seed, args.round, args.data_dir, args.calibrated)


def opened(args: argparse.Namespace) -> tuple[Predictor, NewSamples]:
    """What predicts (the run or export, or, with --adapt, the run adapted to the samples), and the samples.

    Raises:
      UserError: sets or distances together with --adapt; or like `open_predictor` and `adapted_predictor`.
    """
    guarded = args.coverage is not None or args.refuse_above is not None
    refuse_deployment(args.run)
    if args.adapt is None:
        predictor = open_predictor(args.run, chosen_of(args)._replace(guarded=guarded))
        if guarded and predictor.numeric:
            raise UserError(
                f"{args.run} predicts numbers, of which neither intervals nor distances are computed; expected no "
                "--coverage and no --refuse-above"
            )
        return predictor, samples_at(predictor.facts, args.samples)
    if guarded:
        raise UserError(
            "--adapt got --coverage or --refuse-above, too, which are measured for the model as it was trained; "
            "expected one without the other"
        )
    return adapted_predictor(args.run, chosen_of(args), args.adapt, args.samples)


def share(word: str) -> float:
    """The type of an argument that is a number strictly between 0 and 1."""
    with contextlib.suppress(ValueError):
        if 0 < (value := float(word)) < 1:
            return value
    raise argparse.ArgumentTypeError(f"got '{word}'; expected a number between 0 and 1, such as {COVERAGE}")


def share_or_distance(word: str) -> tuple[float | None, float | None]:
    """The type of an argument that is a share in percent, or else a distance: the one that is given."""
    with contextlib.suppress(ValueError):
        if word.endswith("%") and 0 < (percent := float(word.removesuffix("%"))) < 100:
            return percent / 100, None
        if not word.endswith("%") and 0 <= float(word) < math.inf:
            return None, float(word)
    raise argparse.ArgumentTypeError(f"got '{word}'; expected a distance, such as 1.5, or a share, such as 95%")


def set_quantile(predictor: Predictor, args: argparse.Namespace) -> float | None:
    """The quantile of the requested sets; None without sets, which is logged.

    Raises:
      UserError: sets are requested that an export does not have.
    """
    found = predictor.set_quantile(COVERAGE if args.coverage is None else args.coverage)
    if found is None and args.coverage is not None:
        known = ", ".join(predictor.facts.get("set_quantiles", ())) or "none"
        raise UserError(
            f"--coverage got {args.coverage:g}; this export has sets for {known}; expected one of these, or the run"
        )
    if found is None:
        of_run = "--coverage measures it on the run's data"
        of_export = "an export of a run has sets if it is made with fdgjax export --guarded"
        LOGGER.warning(
            f"{args.run} keeps nothing to compute sets and distances from for this model: they are left out; "
            + (of_run if Workdir(args.run).config.is_file() else of_export)
        )
    return found


def farthest_kept(predictor: Predictor, args: argparse.Namespace) -> float | None:
    """The distance above which images are refused; None if none are.

    Raises:
      UserError: an export, which computes no distances, or a share that needs more held-out samples.
    """
    if args.refuse_above is None:
        return None
    if predictor.safeguards is None:
        raise UserError(
            f"--refuse-above got the export {args.run}, whose program computes no distances; expected the run's folder"
        )
    of_own, distance = args.refuse_above
    if distance is not None:
        return float(distance)
    farthest, held_out = predictor.safeguards.farthest(of_own), len(predictor.safeguards.distances)
    if farthest == math.inf:
        most = math.floor(100 * held_out / (held_out + 1))
        raise UserError(
            f"--refuse-above got {100 * of_own:g}%, for which the clients' {held_out} held-out samples are too few; "
            f"expected at most {most}%, or a distance, such as 1.5"
        )
    return farthest


def refusals(found: Predictions, farthest: float) -> np.ndarray:
    """Which images are above a distance, bool `[kept]`; of a predictor with safeguards."""
    assert found.distances is not None, "farthest_kept refuses a predictor without distances"
    above: np.ndarray = found.distances > farthest
    return above


def of_classes(names: Sequence[str], probabilities: np.ndarray) -> list[tuple[str, list[str]]]:
    """The columns of the most probable class and of each one's probability, `[samples, classes]`."""
    each = ((f"p({name})", [f"{value:.6f}" for value in probabilities[:, i]]) for i, name in enumerate(names))
    return [("class", [names[best] for best in probabilities.argmax(axis=1)]), *each]


def predictions_csv(
    class_names: Sequence[str],
    samples: NewSamples,
    found: Predictions,
    quantile: float | None,
    farthest: float | None,
) -> str:
    """The predictions as CSV, a line for each sample that was read.

    Args:
      class_names: of the model; none of one that predicts numbers. samples: all of them. found: what is predicted.
      quantile: of the sets; None without them. farthest: the distance above which images are refused; None for none.
    """
    p, distances = found.probabilities, found.distances
    names = [printable(name) for name in class_names]
    columns = [
        *((name, [samples.names[place][i] for place in found.kept]) for i, name in enumerate(samples.header)),
        *(of_classes(names, p) if names else [("prediction", [f"{value:.7g}" for value in p[:, 0]])]),
    ]
    if quantile is not None:
        sets = prediction_sets(p, quantile)
        columns.append(("set", ["|".join(names[i] for i in np.flatnonzero(row)) for row in sets]))
    if distances is not None:
        columns.append(("distance", [f"{value:.4f}" for value in distances]))
    if farthest is not None:
        columns.append(("refused", ["yes" if refused else "no" for refused in refusals(found, farthest)]))
    return csv_text([[name for name, _ in columns], *zip(*(column for _, column in columns), strict=True)])
