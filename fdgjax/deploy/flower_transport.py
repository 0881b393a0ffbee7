"""fdgjax's messages as Flower's, and Flower's grid as a `Transport`; only this module, the two apps and the
long-lived node (`warm_node`, `worker`) import Flower.

An array travels as its raw bytes, without a NumPy header; paths, shapes and types are in Flower's metadata.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fdgjax.deploy.placement import Leaves
from fdgjax.deploy.rounds import Say
from fdgjax.deploy.waiting import pause
from fdgjax.deploy.wire import Reply, Request
from fdgjax.utils.errors import UserError

RAW = "fdgjax.bytes"
PAUSE_SECONDS = 1.0
"""Between two looks for replies, at most; see `pause`."""
NODE_NAME = "client"
"""With authentication, the node of client 2 is registered under the name `client2`."""


def to_record(arrays: Leaves) -> ArrayRecord:
    """Arrays by path as a Flower record."""
    each = ((path, np.asarray(leaf)) for path, leaf in arrays.items())
    return ArrayRecord(
        {path: Array(dtype=str(leaf.dtype), shape=leaf.shape, stype=RAW, data=leaf.tobytes()) for path, leaf in each}
    )


def from_record(record: ArrayRecord) -> Leaves:
    """The inverse of `to_record`.

    Raises:
      UserError: an array in another format than that of `to_record`.
    """
    try:
        return {
            path: np.frombuffer(array.data, np.dtype(array.dtype)).reshape(array.shape)
            for path, array in record.items()
            if array.stype == RAW
        }
    except (TypeError, ValueError) as error:
        raise UserError(f"a message cannot be read ({error}); expected fdgjax's; install the same version") from error


def to_content(request: Request) -> RecordDict:
    """A request as the content of a message."""
    facts: dict[str, Any] = {"action": request.action, "client": request.client, "terms": request.terms}
    facts |= request.facts
    return RecordDict({"arrays": to_record(request.arrays), "facts": ConfigRecord(facts)})


def from_content(content: RecordDict) -> Request:
    """The inverse of `to_content`."""
    facts: dict[str, Any] = dict(content.config_records["facts"])
    action, client, terms = (facts.pop(name) for name in ("action", "client", "terms"))
    return Request(action, client, terms, from_record(content.array_records["arrays"]), facts)


def reply_content(reply: Reply) -> RecordDict:
    """A reply as the content of a message."""
    facts: dict[str, Any] = {"client": reply.client, "error": reply.error, **reply.facts}
    return RecordDict({"arrays": to_record(reply.arrays), "facts": ConfigRecord(facts)})


def from_reply(content: RecordDict) -> Reply:
    """The inverse of `reply_content`."""
    facts: dict[str, Any] = dict(content.config_records["facts"])
    return Reply(int(facts.pop("client")), from_record(content.array_records["arrays"]), facts, str(facts.pop("error")))


class Seen(NamedTuple):
    """An online node: its number in Flower, when it was last activated, and the name under which its key is
    registered."""

    node: int
    since: str
    name: str


class Waiting(NamedTuple):
    """A sent message without a reply yet: the receiving node, and the message's id."""

    seen: Seen
    message: str


class FlowerTransport:
    """A `Transport` over Flower's grid: it maps clients to nodes, and repeats its request to a node that came back.

    Args:
      grid: Flower's grid.
      named: whether a node must be registered under its client's name, as with authentication; otherwise the client
        number that a node reports is trusted. If several nodes report the same client, the last one to join counts.
      say: receives the lines of output.
    """

    def __init__(self, grid: Grid, named: bool, say: Say) -> None:
        self.grid, self.named, self.say = grid, named, say
        self.terms = ""
        self.nodes: dict[int, Seen] = {}
        self.samples: dict[int, int] = {}
        self.asked: dict[int, Waiting] = {}
        self.known: set[Seen] = set()

    def join(self, terms: str, clients: int) -> Mapping[int, int]:
        """See `Transport`."""
        self.terms = terms
        self.say(f"waiting for {clients} clients")
        begin = time.monotonic()
        while set(self.samples) != set(range(clients)):
            self.look()
            time.sleep(pause(time.monotonic() - begin, PAUSE_SECONDS))
        return self.samples

    def look(self) -> set[Seen]:
        """Asks new nodes which client they are, and reads their replies; returns the online nodes."""
        online = {Seen(info.node_id, info.last_activated_at, info.name) for info in self.grid.get_nodes()}
        for seen in online - self.known:
            self.asked[seen.node] = Waiting(seen, self.push(seen, Request("join", -1, self.terms, {}, {})))
        self.known = online
        for message in self.pull(one.message for one in self.asked.values()):
            asked = self.asked.pop(message.metadata.src_node_id, None)
            if asked is None or message.has_error():
                continue
            reply = from_reply(message.content)
            if reason := self.refusal(asked.seen, reply):
                self.say(f"node {asked.seen.node} is refused: {reason}")
                continue
            self.nodes[reply.client], self.samples[reply.client] = asked.seen, int(reply.facts["samples"])
            self.say(f"client {reply.client} is node {asked.seen.node}, with {reply.facts['samples']} samples")
        return online

    def refusal(self, seen: Seen, reply: Reply) -> str:
        """Why a node is refused for this run; '' if it is accepted."""
        if reply.error:
            return reply.error
        if self.named and seen.name != f"{NODE_NAME}{reply.client}":
            return f"it says it is client {reply.client}, and its key is registered for '{seen.name}'"
        return ""

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """See `Transport`. A client whose node went offline and came back, perhaps as a new node, is sent its request
        again."""
        begin, todo = time.monotonic(), {request.client: request for request in requests}
        waiting: dict[int, Waiting] = {}
        replies: list[Reply] = []
        while todo and not (deadline and time.monotonic() - begin > deadline):
            online = self.look()
            for client, request in todo.items():
                seen = self.nodes[client]
                if client in waiting and (waiting[client].seen != seen or seen not in online):
                    del waiting[client]
                if client not in waiting and seen in online:
                    waiting[client] = Waiting(seen, self.push(seen, request))
            for message in self.pull(one.message for one in waiting.values()):
                of_node = [c for c, one in waiting.items() if one.seen.node == message.metadata.src_node_id]
                if message.has_error():
                    self.say(f"clients {of_node} failed ({message.error.reason or message.error.code}); asked again")
                else:
                    replies.append(from_reply(message.content))
                for client in of_node:
                    del waiting[client]
                    if not message.has_error():
                        del todo[client]
            time.sleep(pause(time.monotonic() - begin, PAUSE_SECONDS) if todo else 0)
        return replies

    def push(self, seen: Seen, request: Request) -> str:
        """Sends a request to a node; returns the message's id."""
        message = Message(to_content(request), seen.node, MessageType.TRAIN)
        (name,) = self.grid.push_messages([message])
        return name

    def pull(self, messages: Iterable[str]) -> list[Message]:
        """The replies that have arrived."""
        names = [name for name in messages if name]
        return list(self.grid.pull_messages(names)) if names else []
