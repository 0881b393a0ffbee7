"""One seed's log: a line of JSON per round, and the round's numbers to the loggers that the config names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fdgjax.config import Config, to_plain
from fdgjax.loggers import Log, RunInfo, loggers_of, open_loggers
from fdgjax.run.records.workdir import Workdir
from fdgjax.utils.files import append_line, write_lines


def open_log(
    workdir: Workdir, config: Config, records: Sequence[Mapping[str, Any]], warn: Callable[[str], None]
) -> Log:
    """The log of a seed whose rounds so far are `records`.

    Lines of later rounds, which a killed run may have written, are removed, since these rounds are repeated.

    Args:
      workdir: the seed's folder.
      config: the config of this seed alone.
      records: one per round so far.
      warn: called with a message if a logger fails.
    """
    write_lines(workdir.metrics, records)
    place = RunInfo(workdir.path, to_plain(config), len(records))
    loggers = open_loggers(loggers_of(config.writers), place, records, warn)

    def write(record: Mapping[str, Any]) -> None:
        append_line(workdir.metrics, record)
        loggers.write(record)

    return Log(write, loggers.close)
