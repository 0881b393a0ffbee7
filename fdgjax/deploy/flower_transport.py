"""fdgjax's messages as Flower's, and Flower's grid as a `Transport`; only this module, the two apps and the
long-lived node (`warm_node`, `worker`) import Flower.

The arrays of a message travel as one, their raw bytes without NumPy headers: Flower sends each array by requests of
its own, several for each. Their paths, types and shapes are the one array's name.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fdgjax.deploy.leaves import Leaves
from fdgjax.deploy.waiting import pause
from fdgjax.deploy.wire import Reply, Request, Say
from fdgjax.utils.errors import UserError, printable

RAW = "fdgjax.bytes"
PAUSE_SECONDS = 1.0
"""Between two looks for replies, at most; see `pause`."""
NODE_NAME = "client"
"""With authentication, the node of client 2 is registered under the name `client2`."""
VERSION = "version"
"""The entry of each message with its sender's version of fdgjax."""
MOST_FAILURES = 3
"""How often a node's program may fail at one request before that is its answer."""
OWN_FAILURES = (
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION,
    ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
    ErrorCode.CLIENT_APP_CRASHED,
)
"""Flower's errors that are the node's program's own, rather than the connection's."""


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
    facts |= {**request.facts, VERSION: version("fdgjax")}
    return RecordDict({"arrays": to_record(request.arrays), "facts": ConfigRecord(facts)})


def from_content(content: RecordDict) -> Request:
    """The inverse of `to_content`.

    Raises:
      UserError: it comes from another version of fdgjax.
    """
    facts = checked_facts(content, "the server", "this node")
    action, client, terms = (facts.pop(name) for name in ("action", "client", "terms"))
    return Request(action, client, terms, from_record(content.array_records["arrays"]), facts)


def reply_content(reply: Reply) -> RecordDict:
    """A reply as the content of a message."""
    facts: dict[str, Any] = {"client": reply.client, "error": reply.error, **reply.facts, VERSION: version("fdgjax")}
    return RecordDict({"arrays": to_record(reply.arrays), "facts": ConfigRecord(facts)})


def from_reply(content: RecordDict) -> Reply:
    """The inverse of `reply_content`; a reply that cannot be read, as one of another version, is one with an error."""
    told: Mapping[str, Any] = content.config_records["facts"]
    number = told.get("client", -1)
    client = number if isinstance(number, int) else -1
    if error := str(told.get("error", "")):
        return Reply(client, {}, {}, error)
    try:
        facts = checked_facts(content, "the node", "the server")
        del facts["client"], facts["error"]
        return Reply(client, from_record(content.array_records["arrays"]), facts)
    except UserError as mistake:
        return Reply(client, {}, {}, str(mistake))


def checked_facts(content: RecordDict, sender: str, receiver: str) -> dict[str, Any]:
    """What a message says beside its arrays.

    Raises:
      UserError: its sender has another version of fdgjax than the receiver.
    """
    facts: dict[str, Any] = dict(content.config_records["facts"])
    theirs, ours = str(facts.pop(VERSION, "one that does not tell its version")), version("fdgjax")
    if theirs != ours:
        raise UserError(
            f"{sender} has fdgjax {theirs} and {receiver} {ours}; expected the same version; install the server's at "
            "each node, and start the node again"
        )
    return facts


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
        self.terms, self.clients = "", 0
        self.nodes: dict[int, Seen] = {}
        self.samples: dict[int, int] = {}
        self.asked: dict[int, Waiting] = {}
        self.known: set[Seen] = set()
        self.failures = Counter[Seen]()
        self.until = math.inf

    def left(self) -> float:
        """The seconds until the deadline of the exchange that goes on; infinity without one."""
        return max(self.until - time.monotonic(), 0.0)

    def join(self, terms: str, clients: int) -> Mapping[int, int]:
        """See `Transport`."""
        self.terms, self.clients = terms, clients
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
            sent = message.metadata.reply_to_message_id
            asked = next((one for one in self.asked.values() if one.message == sent), None)
            if asked is None:
                continue
            del self.asked[asked.seen.node]
            if message.has_error():
                self.failed_to_join(asked.seen, reason_in(message))
                continue
            reply = from_reply(message.content)
            if reason := self.refusal(asked.seen, reply):
                self.say(f"node {asked.seen.node} is refused: {reason}")
                continue
            self.nodes[reply.client], self.samples[reply.client] = asked.seen, int(reply.facts["samples"])
            self.say(f"client {reply.client} is node {asked.seen.node}, with {reply.facts['samples']} samples")
        return online

    def failed_to_join(self, seen: Seen, reason: str) -> None:
        """Says that a node's program failed when it was asked who it is; it is asked again, unless it fails often."""
        self.failures[seen] += 1
        again = self.failures[seen] < MOST_FAILURES
        if again:
            self.known.discard(seen)
        self.say(f"node {seen.node} failed ({reason}); {'asked again' if again else 'mend it and start it again'}")

    def refusal(self, seen: Seen, reply: Reply) -> str:
        """Why a node is refused for this run; '' if it is accepted."""
        if reply.error:
            return reply.error
        samples = reply.facts.get("samples")
        if not (0 <= reply.client < self.clients and isinstance(samples, int)):
            return (
                f"it says it is client {reply.client} with {samples!r} samples; expected one of {self.clients} clients"
            )
        if self.named and seen.name != f"{NODE_NAME}{reply.client}":
            return f"it says it is client {reply.client}, and its key is registered for '{seen.name}'"
        return ""

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """See `Transport`. A client whose node went offline and came back, perhaps as a new node, is sent its request
        again; so is one whose answer broke off."""
        self.until = time.monotonic() + deadline if deadline else math.inf
        try:
            return self.answers(requests)
        finally:
            self.until = math.inf

    def answers(self, requests: Sequence[Request]) -> list[Reply]:
        """The replies that come until the deadline; see `exchange`."""
        begin, todo = time.monotonic(), {request.client: request for request in requests}
        waiting: dict[int, Waiting] = {}
        replies: list[Reply] = []
        failures, away = Counter[int](), set[int]()
        while todo and self.left():
            online = self.look()
            waiting = {
                client: one for client, one in waiting.items() if one.seen == self.nodes[client] and one.seen in online
            }
            gone = {client for client in todo if self.nodes[client] not in online}
            for client in sorted(gone - away):
                self.say(f"client {client} is offline, and asked again once it is back; see its node's log")
            away = gone
            due = [client for client in todo if client not in waiting and self.nodes[client] in online]
            names = self.push([(self.nodes[client], todo[client]) for client in due])
            waiting |= {client: Waiting(self.nodes[client], name) for client, name in zip(due, names, strict=True)}
            for message in self.pull(one.message for one in waiting.values()):
                # An answer that broke off comes as the server's own error, which names no node.
                sent = message.metadata.reply_to_message_id
                for client in [number for number, one in waiting.items() if one.message == sent]:
                    del waiting[client]
                    if (reply := self.reply_in(message, client, failures)) is not None:
                        replies.append(reply)
                        del todo[client]
            time.sleep(pause(time.monotonic() - begin, PAUSE_SECONDS) if todo else 0)
        return replies

    def reply_in(self, message: Message, client: int, failures: Counter[int]) -> Reply | None:
        """The reply of a client in a message; None if its program failed and is to be asked again."""
        if not message.has_error():
            return from_reply(message.content)._replace(client=client)
        failures[client] += message.error.code in OWN_FAILURES
        if failures[client] < MOST_FAILURES:
            self.say(f"client {client} failed ({reason_in(message)}); asked again")
            return None
        error = f"failed {MOST_FAILURES} times ({reason_in(message)}); expected an answer; see the node's log"
        return Reply(client, {}, {}, error)

    def push(self, requests: Sequence[tuple[Seen, Request]]) -> list[str]:
        """Sends requests to nodes, what they have in common once; returns the messages' ids."""
        messages = [Message(to_content(request), seen.node, MessageType.TRAIN) for seen, request in requests]
        return list(self.grid.push_messages(messages)) if messages else []

    def pull(self, messages: Iterable[str]) -> list[Message]:
        """The replies that have arrived."""
        names = [name for name in messages if name]
        return list(self.grid.pull_messages(names)) if names else []


def reason_in(message: Message) -> str:
    """Why a node's program failed, in one line."""
    return printable(message.error.reason or f"Flower's error {message.error.code}")
