"""Several loggers combined into one, none of which can end a run: one that fails is reported once, then ignored."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fdgjax.loggers.base import Logger, RunInfo, Sink, numbers
from fdgjax.utils.errors import reason_of

Result = TypeVar("Result")

LONGEST = 200
"""The maximum number of characters shown of a library's message."""


class Log(NamedTuple):
    """write: the record of one more round. close: writes everything to disk."""

    write: Callable[[Mapping[str, Any]], None]
    close: Callable[[], None]


def open_loggers(
    loggers: Sequence[Logger], info: RunInfo, records: Sequence[Mapping[str, Any]], warn: Callable[[str], None]
) -> Log:
    """Opens all loggers of one seed's run.

    Each round is logged once. A logger that stopped early, or that was added later, gets the rounds that it lacks.
    Rounds that it already has are not written again when a killed run repeats them, as their numbers are the same.

    Args:
      loggers: the run's loggers.
      info: the run.
      records: one per round so far.
      warn: called with one line if a logger fails in any way; the run continues without that logger.
    """
    opened = {logger: guarded(logger, partial(opened_sink, logger, info, records), warn) for logger in loggers}

    def write(record: Mapping[str, Any]) -> None:
        for logger, sink in opened.items():
            opened[logger] = sink and guarded(logger, partial(caught_up, sink, [record]), warn)

    def close() -> None:
        for logger, sink in opened.items():
            if sink is not None:
                guarded(logger, sink.close, warn)

    return Log(write, close)


def opened_sink(logger: Logger, info: RunInfo, records: Sequence[Mapping[str, Any]]) -> Sink:
    """The open logger, after it was given the rounds so far."""
    return caught_up(logger.open(info), records)


def caught_up(sink: Sink, records: Sequence[Mapping[str, Any]]) -> Sink:
    """The logger, after those records that it did not have were written to it."""
    for record in records:
        if record["round"] > sink.held:
            sink.write(record["round"], dict(numbers(record)))
    return sink


def guarded(logger: Logger, function: Callable[[], Result], warn: Callable[[str], None]) -> Result | None:
    """The function's result; if the function fails, None, and `warn` is called with one line."""
    try:
        return function()
    # The errors of third-party libraries, servers and disks have no common class.
    except Exception as error:
        reason = reason_of(error)[:LONGEST]
        warn(f"{logger.title} cannot be written ({reason}): the run goes on without it")
        return None
