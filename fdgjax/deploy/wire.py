"""What travels between server and node, whatever carries it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fdgjax.deploy.placement import Leaves

Fact = str | int | float


class Request(NamedTuple):
    """From the server to a client: what is to be done, arrays by path, and facts.

    action: a key of `fdgjax.deploy.request_handlers.ACTIONS`. client: whom it is for. terms: see `agreement.to_words`.
    """

    action: str
    client: int
    terms: str
    arrays: Leaves
    facts: Mapping[str, Fact]


class Reply(NamedTuple):
    """From a client to the server: arrays by path, and facts. error: one line in the place of both; '' for none."""

    client: int
    arrays: Leaves
    facts: Mapping[str, Fact]
    error: str = ""


class Transport(Protocol):
    """How requests reach the clients."""

    def join(self, terms: str, clients: int) -> Mapping[int, int]:
        """Waits until every client is there; their numbers of training samples."""
        ...

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """The replies to the requests: all of them, or with a deadline in seconds those that came by then."""
        ...


def payload(arrays: Leaves) -> int:
    """The bytes of the arrays themselves, without what frames them."""
    return sum(np.asarray(leaf).nbytes for leaf in arrays.values())
