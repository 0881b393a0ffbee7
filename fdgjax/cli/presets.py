"""The presets of `--config=METHOD:PRESET`: data sets with their network, and papers' settings.

    fdgjax presets

`fdgjax train --config=METHOD:PRESET --help` shows every key's value.
"""

from collections.abc import Iterator, Sequence

from fdgjax.config.presets import PRESETS, PURPOSES, dataset_of
from fdgjax.config.schema import Config
from fdgjax.data.sources.loading import DATASETS, FROM_FILES
from fdgjax.utils.command import command, parser_of


@command
def main(argv: Sequence[str]) -> int:
    """Prints the list."""
    parser_of("presets", __doc__).parse_args(argv[1:])
    for line in listing():
        print(line)
    return 0


def listing() -> Iterator[str]:
    """A line for each preset: its name, its data set, and what it is for."""
    yield f"{'preset':28s}{'data':17s}what for"
    for name in dict.fromkeys((*DATASETS, *PRESETS)):
        yield f"{name:28s}{dataset_of(name):17s}{PURPOSES.get(name) or plainly(name)}"


def plainly(name: str) -> str:
    """What the preset of a data set sets: its network, and the size of its images, if it has some."""
    values, default = PRESETS.get(name, {}), Config()
    size = values.get("data", {}).get("image_size", default.data.image_size)
    network = values.get("model", {}).get("name", default.model.name)
    if name not in FROM_FILES:
        return network
    return f"{network}, {f'{size} pixels' if size else 'images as they are'}"
