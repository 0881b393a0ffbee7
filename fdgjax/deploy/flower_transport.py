"""fdgjax's messages as Flower's, and Flower's grid as a `Transport`; only this module, the two apps and the
long-lived node (`warm_node`, `worker`) import Flower.

The arrays of a message travel as one, their raw bytes without NumPy headers: Flower sends each array by requests of
its own, several for each. Their paths, types and shapes are the one array's name.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    if not arrays:
        return ArrayRecord({})
    each = [(path, np.asarray(leaf)) for path, leaf in arrays.items()]
    layout = json.dumps([(path, str(leaf.dtype), leaf.shape) for path, leaf in each])
    data = b"".join(leaf.tobytes() for _, leaf in each) or b"\0"  # Flower reads no array of no bytes
    return ArrayRecord({layout: Array(dtype="uint8", shape=(len(data),), stype=RAW, data=data)})


def from_record(record: ArrayRecord) -> Leaves:
    """The inverse of `to_record`.

    Raises:
      UserError: an array in another format than that of `to_record`.
    """
    try:
        packed = [(layout, array) for layout, array in record.items() if array.stype == RAW]
        return dict(pair for layout, array in packed for pair in split(layout, array))
    except (TypeError, ValueError) as error:
        raise UserError(f"a message cannot be read ({error}); expected fdgjax's; install the same version") from error


def split(layout: str, array: Array) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays that an array of bytes consists of."""
    rest = memoryview(array.data)
    for path, name, shape in json.loads(layout):
        dtype = np.dtype(name)
        size = dtype.itemsize * math.prod(shape)
        yield path, np.frombuffer(rest[:size], dtype).reshape(shape)
        rest = rest[size:]


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
        new = list(online - self.known)
        names = self.push([(seen, Request("join", -1, self.terms, {}, {})) for seen in new])
        self.asked |= {seen.node: Waiting(seen, name) for seen, name in zip(new, names, strict=True)}
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
            waiting = {
                client: one for client, one in waiting.items() if one.seen == self.nodes[client] and one.seen in online
            }
            due = [client for client in todo if client not in waiting and self.nodes[client] in online]
            names = self.push([(self.nodes[client], todo[client]) for client in due])
            waiting |= {client: Waiting(self.nodes[client], name) for client, name in zip(due, names, strict=True)}
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

    def push(self, requests: Sequence[tuple[Seen, Request]]) -> list[str]:
        """Sends requests to nodes, what they have in common once; returns the messages' ids."""
        messages = [Message(to_content(request), seen.node, MessageType.TRAIN) for seen, request in requests]
        return list(self.grid.push_messages(messages)) if messages else []

    def pull(self, messages: Iterable[str]) -> list[Message]:
        """The replies that have arrived."""
        names = [name for name in messages if name]
        return list(self.grid.pull_messages(names)) if names else []
