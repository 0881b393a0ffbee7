"""TensorBoard events: every number of a round's record, under its name, in the folder `tensorboard`."""

import time
from collections.abc import Mapping
from typing import Any

from fdgjax.loggers.base import Logger, RunInfo, Sink


def open_tensorboard(place: RunInfo) -> Sink:
    """Events of the run; those after `place.done`, left by a run that was killed, are purged."""
    # Not tensorboardX's SummaryWriter: its thread dies of a full disk in silence, and then its queue blocks the run.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.summary import scalar

    # Protocol buffers make their classes when imported; there is nothing to check their arguments by.
    event: Any = Event
    folder = place.folder / "tensorboard"
    held = place.done if any(folder.glob("events.*")) else 0
    folder.mkdir(parents=True, exist_ok=True)
    events = EventsWriter(str(folder / "events"), f".{held:06d}")
    events.write_event(event(step=held + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(round_: int, numbers: Mapping[str, float]) -> None:
        now = time.time()
        for name, value in numbers.items():
            events.write_event(event(wall_time=now, step=round_, summary=scalar(name, value)))
        events.flush()

    return Sink(held, write, events.close)


ENTRY = Logger("tensorboard", "TensorBoard's events", "tensorboardX", open_tensorboard)
