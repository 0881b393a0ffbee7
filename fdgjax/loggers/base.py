"""A logger receives a run's numbers, round by round."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class RunInfo(NamedTuple):
    """What a logger is told about the run of one seed.

    folder: the seed's folder. config: all keys, nested. done: rounds so far; later rounds, which a killed run may have
    logged, are repeated with the same numbers.
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
    """An open logger.

    held: the last round that is already logged; only later rounds are written. write: `(round, numbers by name)`.
    close: called once, after the last round or an earlier stop.
    """

    held: int
    write: Callable[[int, Mapping[str, float]], None]
    close: Callable[[], None]


class Logger(NamedTuple):
    """A logger of the registry, defined as `ENTRY` in its file.

    name: its word in `config.writers` and in `pip install fdgjax[NAME]`. title: its name in messages. package: the
    library it imports. open: returns the open logger. Both may raise any exception: the run then continues without the
    logger.
    """

    name: str
    title: str
    package: str
    open: Callable[[RunInfo], Sink]


def numbers(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """All numbers in nested records and lists, each named by its path."""
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from numbers(value, f"{name}/")
        elif isinstance(value, list):
            yield from numbers({str(i): v for i, v in enumerate(value)}, f"{name}/")
        elif isinstance(value, int | float):
            yield name, float(value)
