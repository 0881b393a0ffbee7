"""What SIGTERM and Ctrl-C do to a command that trains."""

import signal
import threading
from types import FrameType


def save_on_signals(stop: threading.Event) -> list[int]:
    """A first SIGTERM or Ctrl-C requests a save and a clean stop, a second one kills the run; returns the signals."""
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return received
