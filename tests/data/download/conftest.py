"""A server that fails on request, and nobody who waits for it."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.data.download.server import Served, serving


@pytest.fixture
def server() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a download would have waited between tries."""
    waits: list[float] = []
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=waits.append))
    return waits
