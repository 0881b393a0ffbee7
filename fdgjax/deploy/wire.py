"""The messages between server and nodes, for any transport."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fdgjax.deploy.leaves import Leaves

Fact = str | int | float
Say = Callable[[str], None]
"""Receives the server's lines of output."""
OWN, UNSEEN = "own", "unseen"
"""Of a request to evaluate: the prefixes of what a client's own model is computed from, and of the models for an unseen
domain."""
SELECTED = "selected"
"""A fact of requests to evaluate and to finish: the round that is selected so far, if the run selects one by the
clients' held-out samples; -1 for none. Of the reply to the latter: the round whose model is written, -1 for the
last."""
GROUPS = "groups"
"""A fact of replies to a request to evaluate, where samples are grouped: the number of groups of each table that was
counted, as JSON."""
WORKDIR = "workdir"
"""A fact of requests to evaluate and to finish: a random name of the server's folder, the same however often the run in
it is started again."""


class Request(NamedTuple):
    """A message from the server to a client: an action, arrays by path, and facts.

    action: a key of `fdgjax.deploy.request_handlers.ACTIONS`. client: its receiver. terms: see `terms.to_words`.
    run: names the server's run for a node, if the transport does; it is not sent. A run that is started again has
      another name.
    """

    action: str
    client: int
    terms: str
    arrays: Leaves
    facts: Mapping[str, Fact]
    run: str = ""


class Reply(NamedTuple):
    """A message from a client to the server: arrays by path, and facts. error: one line instead of both; '' for
    none."""

    client: int
    arrays: Leaves
    facts: Mapping[str, Fact]
    error: str = ""


class Transport(Protocol):
    """How requests reach the clients."""

    def join(self, terms: str, clients: int) -> Mapping[int, int]:
        """Waits until every client has joined; returns each one's number of training samples."""
        ...

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """The replies to the requests: all of them, or with a deadline in seconds those that came by then."""
        ...
