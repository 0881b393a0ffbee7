"""The networks of the registry, and what they and their FDSE variants cost.

fdgjax models                                                   lists them
fdgjax models NAME [--image_size 224] [--classes 10]            one network: its stages and its cost
fdgjax models --cost [--image_size 224] [--classes 10]          the cost of each
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from fdgjax.config.help import WIDTH
from fdgjax.models import MODELS, UNITS, Backbone
from fdgjax.models.cost import cost
from fdgjax.utils.command import command, parser_of, positive_number
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup

ROW = "{:20s} {:12s} {:>16s} {:>10s} {:>26s}"


def cost_table(models: Mapping[str, Backbone], image_size: int, classes: int) -> Iterator[str]:
    """A line for every network and one for its FDSE variant, and a line with the ratios of their numbers; or a line
    that says why a network cannot take the images, or has no such variant."""
    yield ROW.format("model", "unit", "parameters [M]", "MiB", "multiply-adds [M/sample]")
    for name, maker in models.items():
        sample, counted = maker.sample or (image_size, image_size, 3), []
        try:
            for title, unit in (("own", None), ("dse", UNITS["dse"])):
                counted.append(it := cost(maker(classes, unit=unit), sample))
                numbers = (it.parameters / 1e6, it.bytes / 2**20, it.flops / 1e6)
                yield ROW.format(name, title, *(f"{number:,.2f}" for number in numbers))
        except UserError as error:
            yield f"{name:20s} none: {error}"
            continue
        ratios = (f"{after / before:.3f}" for before, after in zip(*counted, strict=True))
        yield ROW.format("", "dse / own", *ratios)
    size = f"{image_size}x{image_size}"
    yield f"For RGB images of {size} pixels, or the samples that a network is made for, and {classes} classes."


def listing(models: Mapping[str, Backbone]) -> Iterator[str]:
    """A line for each network, with its number of stages that can be frozen."""
    for name, maker in models.items():
        yield f"{name:20s} {len(maker.stages):2d} stages  {maker.summary}"


def about(name: str) -> Iterator[str]:
    """What a network is, and its stages."""
    yield f"{name}: {MODELS[name].summary}"
    if MODELS[name].stages:
        stages = textwrap.wrap(", ".join(MODELS[name].stages), WIDTH - 2)
        yield "stages, of which config.model.frozen=K freezes the first K:"
        yield from (f"  {line}" for line in stages)
    yield ""


@command
def main(argv: Sequence[str]) -> int:
    """Prints the list, one network, or the table of costs; returns the exit status, 2 for a network that does not
    exist."""
    parser = parser_of("models", __doc__)
    parser.add_argument("name", nargs="?", metavar="NAME", help="a network to explain; without it, a list")
    parser.add_argument("--cost", action="store_true", help="parameters, bytes and multiply-adds instead of summaries")
    parser.add_argument("--image_size", type=positive_number, default=224, help="height and width of RGB images")
    parser.add_argument("--classes", type=positive_number, default=10)
    chosen = parser.parse_args(argv[1:])
    models = {chosen.name: lookup("network", chosen.name, MODELS)} if chosen.name else MODELS
    costs = cost_table(models, chosen.image_size, chosen.classes)
    lines = chain(about(chosen.name), costs) if chosen.name else costs if chosen.cost else listing(models)
    for line in lines:
        print(line, flush=True)
    return 0
