"""TensorBoard events: every number of a round's record, under its name."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Events(NamedTuple):
    """write: the numbers of one record, at its round. close: writes everything to disk."""

    write: Callable[[Mapping[str, Any]], None]
    close: Callable[[], None]


def open_events(path: Path, *, first_round: int) -> Events:
    """Events below `path`; those of `first_round` and later, left by a run that was killed, are purged."""
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(path), purge_step=first_round, flush_secs=10)

    def write(record: Mapping[str, Any]) -> None:
        for name, value in numbers(record):
            writer.add_scalar(name, value, record["round"])

    return Events(write, writer.close)


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
