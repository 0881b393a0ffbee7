"""How long to wait before asking again."""

import math
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

SHARE = 0.1
"""The part of the time waited so far that the next pause takes."""
LEAST_SECONDS = 0.05
"""The shortest pause."""


class NeverSentError(BaseException):
    """The rest of an answer does not come; no `Exception`, as Flower logs those and goes on."""


def pause(waited: float, most: float) -> float:
    """The seconds until the next look, after `waited` seconds without success: `clip(waited / 10, 1/20, most)`.

    Whatever is waited for is thus seen a tenth of its own time too late, and after a minute nobody is asked more often
    than once in `most` seconds.
    """
    return min(most, max(LEAST_SECONDS, SHARE * waited))


def growing_pauses(
    sleep: Callable[[float], None], now: Callable[[], float] = time.monotonic
) -> Callable[[float], None]:
    """A `sleep` that waits shorter at first: consecutive calls with the same number of seconds are one wait, whose
    pauses grow up to that number."""
    asked, begin = 0.0, 0.0

    def wait(seconds: float) -> None:
        nonlocal asked, begin
        if seconds != asked:
            asked, begin = seconds, now()
        sleep(pause(now() - begin, seconds))

    return wait


def look_soon(module: ModuleType) -> None:
    """Lets a module of Flower that waits by `time.sleep` wait by `growing_pauses`; its intervals are no setting."""
    sleep_by(module, growing_pauses(time.sleep))


def sleep_by(module: ModuleType, sleep: Callable[[float], None]) -> None:
    """Lets a module that waits by `time.sleep` wait by `sleep`; the rest of its `time` stays."""
    setattr(module, "time", SimpleNamespace(**{**vars(module.time), "sleep": sleep}))  # noqa: B010


def retry_soon(module: ModuleType, name: str, left: Callable[[], float] = lambda: math.inf) -> None:
    """Lets a module of Flower ask soon again for a part of a message that is on its way, where by itself it waits for a
    second; and ask no longer than the seconds `left` when it begins, where by itself it asks for hours."""
    pull = getattr(module, name)

    def soon(*args: Any, **options: Any) -> Any:
        return pull(*args, initial_backoff=LEAST_SECONDS, max_time=left(), **options)

    setattr(module, name, soon)


def expect_parts(module: ModuleType, most: float, now: Callable[[], float] = time.monotonic) -> None:
    """Lets the module of Flower that sends a node's answers on wait no longer than `most` seconds, in all, for parts of
    one that its program has not handed over. By itself it waits for ever, even if that program was killed.

    Raises:
      NeverSentError: they did not come; by the module, when it sends an answer.
    """
    push, clock = module.push_object_contents_from_iterable, module.time
    left = math.inf

    def sleep(seconds: float) -> None:
        nonlocal left
        begin = now()
        clock.sleep(seconds)
        left -= now() - begin
        if left < 0:
            raise NeverSentError

    def send(*args: Any, **options: Any) -> None:
        nonlocal left
        left = most
        try:
            push(*args, **options)
        finally:
            left = math.inf

    sleep_by(module, sleep)
    setattr(module, "push_object_contents_from_iterable", send)  # noqa: B010


def expect_tasks(module: ModuleType, finished: str) -> None:
    """Lets the module of Flower that waits for the answer to a message wait no longer than there is a task for it. By
    itself it waits for ever if its program was killed between beginning the task and receiving the message.

    Args:
      module: Flower's.
      finished: the status of a task that ended, however it did.

    Raises:
      NeverSentError: no task is left, and at the next look no answer, either; by the module.
    """
    push, clock = module._push_messages, module.time
    node: Any = None
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        clock.sleep(seconds)
        if node is None:
            return
        unfinished = [task for task in node.get_tasks() if task.status.status != finished]
        looks = 0 if unfinished else looks + 1
        if looks > 1:
            raise NeverSentError

    def send(*, state: Any, **rest: Any) -> None:
        nonlocal node, looks
        node, looks = state, 0
        try:
            push(state=state, **rest)
        finally:
            node = None

    sleep_by(module, sleep)
    setattr(module, "_push_messages", send)  # noqa: B010
