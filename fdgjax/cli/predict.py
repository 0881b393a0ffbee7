"""Class and probabilities of images, predicted by a trained run.

    fdgjax predict RUN IMAGES... [--client K] [--out FILE.csv] [--calibrated]

Without --client, the model for an unseen domain predicts; if the method has several, their probabilities are averaged.
Images are decoded and resized like those of the run. The result is CSV: file, class, and a column for the probability
of each class.
"""

import argparse
import csv
import io
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fdgjax.inference.classifier import UNSEEN, Classifier, open_classifier
from fdgjax.inference.images import predict_files
from fdgjax.utils.command import command
from fdgjax.utils.errors import printable
from fdgjax.utils.files import write_text


@command
def main(argv: Sequence[str]) -> int:
    """Writes the predictions; returns the exit status, 2 for a mistake in the input."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    args = parse(argv)
    classifier = classifier_asked(args)
    found = predict_files(classifier, args.images)
    text = predictions_csv(classifier.class_names, args.images, found)
    if args.out:
        write_text(args.out, text)
        print(f"{len(found)} images in {printable(args.out)}")
    else:
        print(text, end="")
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(prog="fdgjax predict", description=str(__doc__).partition("\n")[0])
    add_run(parser)
    parser.add_argument("images", type=Path, nargs="+", metavar="IMAGE", help="image files")
    parser.add_argument("--out", type=Path, help="the CSV file; without it the text is printed")
    return parser.parse_args(argv[1:])


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that choose a classifier."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="folder of a run, with its checkpoints")
    add("--client", type=int, default=UNSEEN, metavar="K", help="that client's model, from 0; else the unseen domain's")
    add("--seed", type=int, help="of a run with several seeds; else the first")
    add("--data_dir", default="", help="folder of the data, if it has moved since the run")
    add("--calibrated", action="store_true", help="with a temperature fitted on the run's validation data")


def classifier_asked(args: argparse.Namespace) -> Classifier:
    """The classifier that the arguments of `add_run` choose."""
    return open_classifier(
        args.run, client=args.client, seed=args.seed, data_dir=args.data_dir, calibrated=args.calibrated
    )


def predictions_csv(class_names: Sequence[str], files: Sequence[Path], found: np.ndarray) -> str:
    """The predictions as CSV, a line for each file."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["file", "class", *(f"p({printable(name)})" for name in class_names)])
    for file, row in zip(files, found, strict=True):
        writer.writerow([printable(file), printable(class_names[int(row.argmax())]), *(f"{p:.6f}" for p in row)])
    return stream.getvalue()
