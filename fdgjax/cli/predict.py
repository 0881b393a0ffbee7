"""Class and probabilities of images, predicted by a trained run or an export.

    fdgjax predict RUN|EXPORT IMAGES... [--client K] [--round last|selected|N] [--out FILE.csv] [--calibrated]

IMAGES are files, or folders, which are searched with their subfolders. Of a run, the model for an unseen domain
predicts, or that of --client; if the method has several for an unseen domain, their probabilities are averaged. Images
are decoded and resized like those that the model was trained on. The result is CSV: file, class, and a column for the
probability of each class. An image in a folder that cannot be read is named and skipped.
"""

import argparse
import csv
import io
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fdgjax.inference.classifier import UNSEEN
from fdgjax.inference.images import images_at, predict_images
from fdgjax.inference.predictor import Chosen, open_predictor
from fdgjax.utils.command import command
from fdgjax.utils.errors import printable
from fdgjax.utils.files import write_text


@command
def main(argv: Sequence[str]) -> int:
    """Writes the predictions; returns the exit status, 2 for a mistake in the input."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    args = parse(argv)
    images = images_at(args.images)
    predictor = open_predictor(args.run, chosen_of(args))
    kept, found = predict_images(predictor, images)
    text = predictions_csv(predictor.class_names, [images[place].path for place in kept], found)
    if args.out:
        write_text(args.out, text)
        skipped = f", {len(images) - len(kept):,} skipped" if len(kept) < len(images) else ""
        print(f"{len(kept)} images in {printable(args.out)}{skipped}")
    else:
        print(text, end="")
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(prog="fdgjax predict", description=str(__doc__).partition("\n")[0])
    add_run(parser, "RUN|EXPORT", "folder of a run, with its checkpoints, or of an export")
    parser.add_argument("images", type=Path, nargs="+", metavar="IMAGES", help="image files, or folders of them")
    parser.add_argument("--out", type=Path, help="the CSV file; without it the text is printed")
    return parser.parse_args(argv[1:])


def add_run(parser: argparse.ArgumentParser, name: str, what: str) -> None:
    """Adds the arguments that choose a model: a folder, called `name` and explained by `what`, and which of a run's."""
    add = parser.add_argument
    add("run", type=Path, metavar=name, help=what)
    add("--client", type=int, default=UNSEEN, metavar="K", help="that client's model, from 0; else the unseen domain's")
    add("--seed", type=int, help="of a run with several seeds; else the first")
    add("--round", default="", metavar="R", help="last, selected or a number; else the selected one, if it is kept")
    add("--calibrated", action="store_true", help="with a temperature fitted on the run's validation data")
    add("--data_dir", default="", help="folder of the run's data for --calibrated, if it has moved since the run")


def chosen_of(args: argparse.Namespace) -> Chosen:
    """The model that the arguments of `add_run` choose."""
    return Chosen(args.client, args.seed, args.round, args.data_dir, args.calibrated)


def predictions_csv(class_names: Sequence[str], files: Sequence[Path], found: np.ndarray) -> str:
    """The predictions as CSV, a line for each file."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["file", "class", *(f"p({printable(name)})" for name in class_names)])
    for file, row in zip(files, found, strict=True):
        writer.writerow([printable(file), printable(class_names[int(row.argmax())]), *(f"{p:.6f}" for p in row)])
    return stream.getvalue()
