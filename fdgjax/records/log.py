"""One seed's rounds as they happen: a line of JSON and TensorBoard events for each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fdgjax.files import append_line, write_lines
from fdgjax.records.events import open_events
from fdgjax.records.workdir import Workdir


class Log(NamedTuple):
    """write: the record of one more round. close: writes everything to disk."""

    write: Callable[[Mapping[str, Any]], None]
    close: Callable[[], None]


def open_log(workdir: Workdir, records: Sequence[Mapping[str, Any]], warn: Callable[[str], None]) -> Log:
    """The log of a seed whose rounds so far are `records`.

    Later rounds, of a run that was killed, will be repeated: their lines and events are removed. `warn` is told where
    events cannot be written.
    """
    write_lines(workdir.metrics, records)
    events = open_events(workdir.events, first_round=len(records) + 1, warn=warn)

    def write(record: Mapping[str, Any]) -> None:
        append_line(workdir.metrics, record)
        events.write(record)

    return Log(write, events.close)
