"""What SIGTERM and Ctrl-C do to a command that trains."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SAVING = "ending this round, saving; again to stop at once"
STDOUT = 1
SHOW_CURSOR = b"\x1b[?25h\n"
"""What a terminal needs that shows a progress bar."""


@contextlib.contextmanager
def save_on_signals(stop: threading.Event, say: Callable[[str], None]) -> Iterator[list[int]]:
    """Until the end of the block, a first SIGTERM or Ctrl-C requests a save and a clean stop, and a second one ends the
    process at once, as a kill does; `128 + signal number` is then its exit status.

    A thread does this, and not the handler: Python calls handlers between two instructions of the main thread, which
    may be in a compilation or a computation for minutes.

    Args:
      stop: set by the first signal.
      say: called with `SAVING` by the first signal.

    Yields:
      A list to which the received signals are appended.
    """
    received: list[int] = []
    reading, writing = socket.socketpair()
    writing.setblocking(False)

    def watch() -> None:
        while number := reading.recv(1):
            received.append(number[0])
            if received.count(number[0]) > 1:
                if os.isatty(STDOUT):
                    os.write(STDOUT, SHOW_CURSOR)
                os._exit(128 + number[0])
            stop.set()
            if len(received) == 1:
                with contextlib.suppress(OSError, SystemExit):  # a closed pipe must not end this thread
                    say(SAVING)
        reading.close()

    with writing, contextlib.ExitStack() as restored:
        threading.Thread(target=watch, daemon=True).start()
        restored.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writing.fileno()))
        for number in (signal.SIGTERM, signal.SIGINT):
            restored.callback(signal.signal, number, signal.signal(number, ignore))
        yield received


def ignore(number: int, frame: FrameType | None) -> None:
    """A handler that does nothing: the signal's number is in the socket already."""
    del number, frame
