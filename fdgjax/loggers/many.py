"""Several writers as one, none of which can end a run: one that fails is said once and left behind."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fdgjax.loggers.base import Logger, RunInfo, Sink, numbers

Result = TypeVar("Result")

LONGEST = 200
"""The most characters that are shown of a library's message."""


class Log(NamedTuple):
    """write: the record of one more round. close: writes everything to disk."""

    write: Callable[[Mapping[str, Any]], None]
    close: Callable[[], None]


def open_loggers(
    loggers: Sequence[Logger], place: RunInfo, records: Sequence[Mapping[str, Any]], warn: Callable[[str], None]
) -> Log:
    """All writers of a seed's run.

    A round is written once: to a writer that was stopped before, or that was added later, go the rounds that it lacks;
    those that it has are repeated by a run that was killed, with the same numbers, and are not written again.

    Args:
      loggers: those of the run.
      place: the run.
      records: of its rounds so far.
      warn: told in one line of a writer that fails in any way: the run goes on without it.
    """
    opened = {logger: guarded(logger, partial(opened_sink, logger, place, records), warn) for logger in loggers}

    def write(record: Mapping[str, Any]) -> None:
        for logger, sink in opened.items():
            opened[logger] = sink and guarded(logger, partial(caught_up, sink, [record]), warn)

    def close() -> None:
        for logger, sink in opened.items():
            if sink is not None:
                guarded(logger, sink.close, warn)

    return Log(write, close)


def opened_sink(logger: Logger, place: RunInfo, records: Sequence[Mapping[str, Any]]) -> Sink:
    """The open writer, with the rounds so far."""
    return caught_up(logger.open(place), records)


def caught_up(sink: Sink, records: Sequence[Mapping[str, Any]]) -> Sink:
    """The writer after those of the records that it did not have."""
    for record in records:
        if record["round"] > sink.held:
            sink.write(record["round"], dict(numbers(record)))
    return sink


def guarded(logger: Logger, function: Callable[[], Result], warn: Callable[[str], None]) -> Result | None:
    """The function's result; None, and a line to `warn`, where it fails."""
    try:
        return function()
    # A library of somebody else's, a server or a disk: their errors have no class in common.
    except Exception as error:
        reason = " ".join(str(error).split())[:LONGEST] or type(error).__name__
        warn(f"{logger.title} cannot be written ({reason}): the run goes on without it")
        return None
