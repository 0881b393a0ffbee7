"""The log of messages that each side keeps, a JSON line for each: what an auditor reads and compares.

A node's file is `messages.jsonl` in its folder of states, the server's in its workdir. Lines are only ever appended. A
message that cannot be logged is not sent. `fdgjax.deploy.audit` reads and compares the files.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fdgjax.deploy.leaves import Leaves
from fdgjax.deploy.wire import Reply, Request, Transport
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder
from fdgjax.utils.variables import bytes_of

MESSAGES = "messages.jsonl"
SERVER, NODE = "server", "node"
SENT, RECEIVED = "sent", "received"
LONGEST = 1000
"""Characters of a fact; of a longer one, its SHA-256 is logged."""


def log_message(file: Path, at: str, direction: str, client: int, request: Request, reply: Reply | None = None) -> None:
    """Appends a message's line to a log; it is on disk when this returns.

    Args:
      file: the log.
      at: whose log it is, `SERVER` or `NODE`.
      direction: `SENT` or `RECEIVED`.
      client: the client that the message is to or from.
      request: the message, or, with `reply`, what it answers.
      reply: the message, if it is a reply.

    Raises:
      UserError: the line cannot be written.
    """
    try:
        make_folder(file.parent)
        append(file, json.dumps(entry(at, direction, client, request, reply)) + "\n")
    except OSError as error:
        raise UserError(
            f"the log {file} cannot be written ({error.strerror or error}); expected free space and the right to "
            "append: a message that cannot be logged is not sent"
        ) from error


def entry(at: str, direction: str, client: int, request: Request, reply: Reply | None) -> dict[str, Any]:
    """A message's line, see `log_message`.

    `after_round` is the number of finished rounds when the message was requested, absent before the first. `sha256` is
    that of the arrays (`arrays_sha256`), `terms` that of the terms, which are the same for all messages of a run.
    """
    message = request if reply is None else reply
    facts = {name: loggable(value) for name, value in message.facts.items()}
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "at": at,
        "direction": direction,
        "kind": request.action,
        **({"after_round": int(request.facts["round"])} if "round" in request.facts else {}),
        "client": client,
        "arrays": len(message.arrays),
        "bytes": bytes_of(message.arrays),
        "sha256": arrays_sha256(message.arrays),
        "facts": facts,
        "terms": hashlib.sha256(request.terms.encode()).hexdigest(),
        **({"error": reply.error} if reply is not None and reply.error else {}),
    }


def loggable(value: Any) -> Any:
    """A fact as JSON has it; of long ones, the SHA-256."""
    words = value if isinstance(value, bytes) else str(value).encode()
    if len(words) > LONGEST or isinstance(value, bytes):
        return f"{len(words)} bytes with SHA-256 {hashlib.sha256(words).hexdigest()}"
    return value if isinstance(value, (str, int, float)) else str(value)


def arrays_sha256(arrays: Leaves) -> str:
    """The SHA-256 of arrays: of each, in the order of the paths, the JSON list `[path, type, shape]`, a line break, and
    its bytes in C order."""
    digest = hashlib.sha256()
    for path in sorted(arrays):
        leaf = np.asarray(arrays[path])
        digest.update(json.dumps([path, str(leaf.dtype), list(leaf.shape)]).encode() + b"\n")
        digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def append(file: Path, line: str) -> None:
    """Appends a line by a single write, so that lines of processes at the same time do not mix, and flushes it to disk.

    Raises:
      OSError: it cannot be written, or not all of it.
    """
    number = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(number).st_size
        # A disk that was full may have cut the last line short.
        cut = size > 0 and os.pread(number, 1, size - 1) != b"\n"
        content = (b"\n" if cut else b"") + line.encode()
        if (written := os.write(number, content)) < len(content):
            raise OSError(f"{written} of {len(content)} bytes were written")
        os.fsync(number)
    finally:
        os.close(number)


class Audited:
    """A `Transport` over another one that logs the server's side in `file`: each request before it is handed over, and
    each reply when it is handed on. A request that the transport repeats for a node that came back is logged once.

    Its methods raise a `UserError` if the log cannot be written.
    """

    def __init__(self, transport: Transport, file: Path) -> None:
        self.transport, self.file = transport, file
        self.joined = set[int]()

    def join(self, terms: str, clients: int) -> Mapping[int, int]:
        """See `Transport`. A client's joining is logged once."""
        asked = Request("join", -1, terms, {}, {})
        new = [client for client in range(clients) if client not in self.joined]
        for client in new:
            log_message(self.file, SERVER, SENT, client, asked)
        samples = self.transport.join(terms, clients)
        for client in new:
            log_message(
                self.file, SERVER, RECEIVED, client, asked, Reply(client, {}, {"samples": int(samples[client])})
            )
        self.joined.update(new)
        return samples

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """See `Transport`."""
        for request in requests:
            log_message(self.file, SERVER, SENT, request.client, request)
        replies = self.transport.exchange(requests, deadline)
        asked = {request.client: request for request in requests}
        for reply in replies:
            log_message(self.file, SERVER, RECEIVED, reply.client, asked.get(reply.client, requests[0]), reply)
        return replies
