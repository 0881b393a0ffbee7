"""A writer: something that takes a run's numbers, round by round."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class RunInfo(NamedTuple):
    """What a writer is told of the run of one seed.

    folder: its own. config: all keys, nested. done: rounds so far; later ones, which a killed run may have written,
    come again with the same numbers.
    """

    folder: Path
    config: Mapping[str, Any]
    done: int

    @property
    def name(self) -> str:
        """The run in a few words: method, data set, unseen domain and seed."""
        data = self.config["data"]
        words = (self.config["method"]["name"], data["name"], data["target"], f"s{self.config['seed']}")
        return "-".join(filter(None, words))


class Sink(NamedTuple):
    """An open writer.

    held: the last round that it has already; it gets later rounds alone. write: `(round, numbers by name)`. close:
    called once, after the last round or an earlier stop.
    """

    held: int
    write: Callable[[int, Mapping[str, float]], None]
    close: Callable[[], None]


class Logger(NamedTuple):
    """A writer of the registry; stands as `ENTRY` in its file.

    name: a word of `config.writers`, and of `pip install fdgjax[NAME]`. title: for readers. package: what it imports.
    open: may raise anything, and so may what it returns: the run then goes on without it.
    """

    name: str
    title: str
    package: str
    open: Callable[[RunInfo], Sink]


def numbers(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number in nested records and lists, with its path as name."""
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from numbers(value, f"{name}/")
        elif isinstance(value, list):
            yield from numbers({str(i): v for i, v in enumerate(value)}, f"{name}/")
        elif isinstance(value, int | float):
            yield name, float(value)
