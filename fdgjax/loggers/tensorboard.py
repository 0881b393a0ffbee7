"""TensorBoard events: every number of a round's record, under its name, in the folder `tensorboard`."""

import time
from collections.abc import Mapping
from typing import Any

from fdgjax.loggers.base import Logger, RunInfo, Sink


def open_tensorboard(info: RunInfo) -> Sink:
    """Opens an event file for all rounds from the first one on, which purges those of earlier files: they may lack
    rounds that were trained without TensorBoard, and have rounds after `info.done` of a killed run."""
    # Not tensorboardX's SummaryWriter: on a full disk its thread dies silently, and then its queue blocks the run.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.proto.summary_pb2 import Summary

    # Protocol buffers create their classes at import, so that their arguments cannot be type-checked.
    event: Any = Event
    summary: Any = Summary
    folder = info.folder / "tensorboard"
    folder.mkdir(parents=True, exist_ok=True)
    events = EventsWriter(str(folder / "events"), f".{info.done:06d}")
    events.write_event(event(step=1, session_log=SessionLog(status=SessionLog.START)))

    def write(round_: int, numbers: Mapping[str, float]) -> None:
        # Not tensorboardX's scalar, which makes _ of all but ASCII's letters, so that <65 and >65 were one tag.
        values = [summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        events.write_event(event(wall_time=time.time(), step=round_, summary=summary(value=values)))
        events.flush()

    return Sink(0, write, events.close)


ENTRY = Logger("tensorboard", "TensorBoard's events", "tensorboardX", open_tensorboard)
