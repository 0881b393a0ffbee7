"""A trained run's classifier, for use without this package.

    fdgjax export RUN --out DIR [--client K] [--round last|selected|N] [--calibrated] [--guarded]
    fdgjax export server/model.safetensors --out DIR           # the model that a deployment left, a node's likewise

DIR gets `model.safetensors`, the variables by name; `program.bin`, a StableHLO program made by `jax.export` that maps
images as bytes to probabilities, for any batch size; `model.json`, the classes; and README.md, the model card.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from fdgjax.cli.predict import add_run, chosen_of
from fdgjax.deploy.finished_model import SUFFIX, open_model, refuse_deployment
from fdgjax.inference.classifier import BY_DEFAULT, open_classifier
from fdgjax.inference.exporting import NAMES, check_out, export
from fdgjax.utils.command import command, parser_of
from fdgjax.utils.errors import UserError, printable


@command
def main(argv: Sequence[str]) -> int:
    """Writes the export; returns the exit status, 2 for a mistake in the input."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    parser = parser_of("export", __doc__)
    add_run(parser, "RUN", "folder of a run, with its checkpoints")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new or empty folder, or an export's")
    parser.add_argument(
        "--guarded", action="store_true", help="measures sets and distances on the run's data if it keeps none"
    )
    args = parser.parse_args(argv[1:])
    check_out(args.out)
    chosen = chosen_of(args)._replace(guarded=args.guarded)
    if args.run.suffix == SUFFIX:
        if chosen != BY_DEFAULT:
            raise UserError(f"{args.run} holds a single model; expected no option but --out")
        export(open_model(args.run), args.run, args.out)
    else:
        refuse_deployment(args.run)
        export(open_classifier(args.run, chosen), args.run, args.out)
    print(f"{', '.join(NAMES)} in {printable(args.out)}")
    return 0
