"""TensorBoard events: every number of a round's record, under its name."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Events(NamedTuple):
    """write: the numbers of one record, at its round. close: writes everything to disk."""

    write: Callable[[Mapping[str, Any]], None]
    close: Callable[[], None]


def open_events(path: Path, *, first_round: int, warn: Callable[[str], None]) -> Events:
    """Events below `path`; those of `first_round` and later, left by a run that was killed, are purged.

    They can be drawn again from the metrics: where they cannot be written, `warn` is told once and the run goes on.
    """
    # Not tensorboardX's SummaryWriter: its thread dies of a full disk in silence, and then its queue blocks the run.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.summary import scalar

    def begin() -> EventsWriter:
        path.mkdir(parents=True, exist_ok=True)
        opened = EventsWriter(str(path / "events"))
        opened.write_event(Event(step=first_round, session_log=SessionLog(status=SessionLog.START)))
        return opened

    writer = attempt(begin, warn)

    def write(record: Mapping[str, Any]) -> None:
        nonlocal writer
        if writer is None:
            return
        now, summaries = time.time(), [scalar(name, value) for name, value in numbers(record)]
        opened = writer

        def add() -> EventsWriter:
            for summary in summaries:
                opened.write_event(Event(wall_time=now, step=record["round"], summary=summary))
            opened.flush()
            return opened

        writer = attempt(add, warn)

    return Events(write, lambda: writer and attempt(writer.close, warn))


def attempt(function: Callable[[], Any], warn: Callable[[str], None]) -> Any:
    """The function's result; None, and a line to `warn`, where the disk refuses."""
    try:
        return function()
    except OSError as error:
        warn(f"TensorBoard's events cannot be written ({error}): the run goes on without them")
        return None


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
