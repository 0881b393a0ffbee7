"""What SIGTERM and Ctrl-C do to a command that trains."""

import signal
import threading
from types import FrameType


def save_on_signals(stop: threading.Event) -> list[int]:
    """Makes a first SIGTERM or Ctrl-C request a save and a clean stop, and a second one kill the run.

    Returns:
      A list to which the received signals are appended.
    """
    received: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return received
