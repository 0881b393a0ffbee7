"""The presets of `--config=METHOD:PRESET`: data sets with their network, and papers' settings.

fdgjax presets                  lists them
fdgjax presets NAME [METHOD]    the keys that one sets for a method, by default FedAvg

`fdgjax train --config=METHOD:PRESET --help` shows every key's value.
"""

import textwrap
from collections.abc import Iterator, Sequence

from fdgjax.config.help import WIDTH
from fdgjax.config.make import changed_keys, make_config, typed
from fdgjax.config.presets import PRESETS, PURPOSES, dataset_of
from fdgjax.config.schema import Config
from fdgjax.data.sources.loading import DATASETS, FROM_FILES
from fdgjax.methods import METHODS
from fdgjax.utils.command import command, parser_of


@command
def main(argv: Sequence[str]) -> int:
    """Prints the list, or what one preset sets; returns the exit status, 2 for a preset or method that does not
    exist."""
    parser = parser_of("presets", __doc__)
    parser.add_argument("name", nargs="?", metavar="NAME", help="a preset to explain; without it, a list")
    parser.add_argument("method", nargs="?", metavar="METHOD", default="fedavg", help="the method that it is used with")
    chosen = parser.parse_args(argv[1:])
    for line in about(chosen.name, chosen.method) if chosen.name else listing():
        print(line)
    return 0


def listing() -> Iterator[str]:
    """A line for each preset: its name, its data set, and what it is for."""
    yield f"{'preset':28s}{'data':17s}what for"
    for name in dict.fromkeys((*DATASETS, *PRESETS)):
        yield f"{name:28s}{dataset_of(name):17s}{purpose(name)}"


def about(name: str, method: str) -> Iterator[str]:
    """What a preset is for, the keys that it sets for a method, and the other methods that have settings of their
    own."""
    sets = changed_keys(typed(make_config(method, name).to_dict()))
    yield f"{name}: {purpose(name)}"
    yield ""
    yield f"--config={method}:{name} is the defaults of {method} and"
    yield from (f"  --config.{key}={value}" for key, value in sets.items())
    others = sorted(entry.name for entry in METHODS.values() if name in entry.presets and entry.name != method)
    if others:
        yield ""
        yield from textwrap.wrap(
            f"With settings of their own: {', '.join(others)} (fdgjax presets {name} METHOD).", WIDTH
        )


def purpose(name: str) -> str:
    """What a preset is for."""
    return PURPOSES.get(name) or plainly(name)


def plainly(name: str) -> str:
    """What the preset of a data set sets: its network, and the size of its images, if it has some."""
    values, default = PRESETS.get(name, {}), Config()
    size = values.get("data", {}).get("image_size", default.data.image_size)
    network = values.get("model", {}).get("name", default.model.name)
    if name not in FROM_FILES:
        return network
    return f"{network}, {f'{size} pixels' if size else 'images as they are'}"
