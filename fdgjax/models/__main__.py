"""The cost of every network and of its FDSE twin.

python -m fdgjax.models [--image_size 224] [--classes 10]
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence

from fdgjax.errors import UserError
from fdgjax.models import MODELS, UNITS, Backbone
from fdgjax.models.cost import cost

ROW = "{:20s} {:12s} {:>16s} {:>10s} {:>26s}"


def table(models: Mapping[str, Backbone], image_size: int, classes: int) -> Iterator[str]:
    """A line for every network and for its twin, and one with the ratios of their numbers."""
    yield ROW.format("model", "unit", "parameters [M]", "MiB", "multiply-adds [M/image]")
    for name, maker in models.items():
        try:
            own, twin = (cost(maker(classes, unit=unit), (image_size, image_size, 3)) for unit in (None, UNITS["dse"]))
        except UserError as error:
            yield f"{name:20s} {error}"
            continue
        for unit, it in (("own", own), ("dse", twin)):
            numbers = (it.parameters / 1e6, it.bytes / 2**20, it.flops / 1e6)
            yield ROW.format(name, unit, *(f"{number:,.2f}" for number in numbers))
        ratios = (f"{after / before:.3f}" for before, after in zip(own, twin, strict=True))
        yield ROW.format("", "dse / own", *ratios)


def main(argv: Sequence[str]) -> int:
    """Prints the table."""
    options = argparse.ArgumentParser(prog="python -m fdgjax.models", description=__doc__, allow_abbrev=False)
    options.add_argument("--image_size", type=positive, default=224, help="height and width of the RGB images")
    options.add_argument("--classes", type=positive, default=10)
    chosen = options.parse_args(argv)
    for line in table(MODELS, chosen.image_size, chosen.classes):
        print(line, flush=True)
    return 0


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected a whole number from 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
