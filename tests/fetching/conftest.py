"""A server that fails on request."""

from collections.abc import Iterator

import pytest

from .server import Served, serving


@pytest.fixture
def server() -> Iterator[Served]:
    with serving() as served:
        yield served
