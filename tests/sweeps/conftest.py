"""What all tests of many runs need."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The command takes over signals; not those of the tests."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
