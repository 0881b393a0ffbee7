"""Reads logs of messages (`fdgjax.deploy.message_log`), and compares the server's with those of nodes.

a message arrived unchanged: the other side has a line of the same client, kind and round, with the same SHA-256 of
the arrays, the same error, and no fact that was not sent with this value
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from fdgjax.deploy.message_log import NODE, SENT, SERVER
from fdgjax.utils.errors import UserError, printable

UNCHANGED, CHANGED, UNSENT, LOST, FAILED = "arrived unchanged", "changed", "never sent", "not arrived", "failed"
WRONG = (CHANGED, UNSENT)
"""What no fault of a network or node explains. A deadline or a killed process explains a message that did not arrive,
and an error that the node did not log is the server's word for a node that failed (`FAILED`)."""


class Entry(NamedTuple):
    """A line of a log, see `message_log.entry`; after_round is -1 before the first round."""

    at: str
    direction: str
    kind: str
    after_round: int
    client: int
    arrays: int
    bytes: int
    sha256: str
    facts: dict[str, Any]
    terms: str
    error: str

    @property
    def down(self) -> bool:
        """Whether the message is the server's."""
        return (self.at == SERVER) == (self.direction == SENT)


class MessageLog(NamedTuple):
    """A file's entries, and the numbers of its lines that cannot be read."""

    file: Path
    entries: list[Entry]
    damaged: list[int]


class Finding(NamedTuple):
    """What became of a message: `UNCHANGED`, `CHANGED`, `UNSENT`, `LOST` or `FAILED`."""

    entry: Entry
    state: str


def audit(files: Sequence[Path]) -> int:
    """Prints a table of each log and, with logs of both sides, what became of each message.

    Returns:
      1 if a message arrived changed or was never sent, or if a line cannot be read; otherwise 0.

    Raises:
      UserError: a file that cannot be read or holds no message, or logs of different runs.
    """
    console, logs = Console(), [read_log(file) for file in files]
    for log in logs:
        console.print(table_of(log))
        if log.damaged:
            words = ", ".join(map(str, log.damaged))
            console.print(f"{log.file}: lines that cannot be read: {words}", markup=False, soft_wrap=True)
    entries = [entry for log in logs for entry in log.entries]
    findings = compare(entries)
    if findings:
        console.print(table_of_findings(findings))
    for entry, state in findings:
        if state != UNCHANGED:
            console.print(f"{in_words(entry)}: {state}", markup=False, highlight=False, soft_wrap=True)
    return 1 if any(log.damaged for log in logs) or any(state in WRONG for _, state in findings) else 0


def read_log(file: Path) -> MessageLog:
    """Raises a `UserError` for a file that cannot be read or that holds no message."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UserError(
            f"--audit got '{file}' ({error.strerror}); expected a messages.jsonl, from a node's states or the "
            "server's workdir"
        ) from error
    entries, damaged = list[Entry](), list[int]()
    for number, line in enumerate(lines, 1):
        if line:
            try:
                entries.append(entry_of(json.loads(line)))
            except (ValueError, TypeError, KeyError, AttributeError):
                damaged.append(number)
    if not entries:
        raise UserError(f"--audit got '{file}', which holds no message; expected a messages.jsonl")
    return MessageLog(file, entries, damaged)


def entry_of(found: Any) -> Entry:
    """An entry from its JSON; raises a `KeyError`, `TypeError`, `AttributeError` or `ValueError` for anything else."""
    return Entry(
        at=str(found["at"]),
        direction=str(found["direction"]),
        kind=str(found["kind"]),
        after_round=int(found.get("after_round", -1)),
        client=int(found["client"]),
        arrays=int(found["arrays"]),
        bytes=int(found["bytes"]),
        sha256=str(found["sha256"]),
        facts=dict(found["facts"].items()),
        terms=str(found["terms"]),
        error=str(found.get("error", "")),
    )


def compare(entries: Sequence[Entry]) -> list[Finding]:
    """What became of each message between the server and the clients whose logs are there; none with one side's logs
    alone. Lines of a node that belong to other runs, by their terms, are left out.

    Raises:
      UserError: a node's log and the server's share no run.
    """
    ours = [entry for entry in entries if entry.at == SERVER]
    terms = {entry.terms for entry in ours}
    groups: dict[tuple[int, int, str, bool], list[Entry]] = defaultdict(list)
    clients = {entry.client for entry in entries if entry.at == NODE} if ours else set[int]()
    for client in sorted(clients):
        theirs = [one for one in entries if one.at == NODE and one.client == client and one.terms in terms]
        if not theirs:
            raise UserError(
                f"--audit got logs of client {client} and the server with no run in common; expected those of one run"
            )
        for entry in (*(one for one in ours if one.client == client), *theirs):
            groups[client, entry.after_round, entry.kind, entry.down].append(entry)
    return [finding for group in groups.values() for finding in of_group(group)]


def of_group(entries: Sequence[Entry]) -> Iterator[Finding]:
    """What became of the messages of one kind and round between the server and a client."""
    sent = [one for one in entries if one.direction == SENT]
    received = [one for one in entries if one.direction != SENT]
    unlike = [one for one in received if not any(same(other, one) for other in sent)]
    failed = [one for one in unlike if one.at == SERVER and one.error and not one.arrays]
    strange = [one for one in unlike if one not in failed]
    yield from (Finding(one, FAILED) for one in failed)
    yield from (Finding(one, CHANGED if sent else UNSENT) for one in strange)
    for one in sent:
        if any(same(one, other) for other in received):
            yield Finding(one, UNCHANGED)
        elif not strange:
            yield Finding(one, LOST)


def same(sent: Entry, received: Entry) -> bool:
    """Whether what was received is what was sent. The server's line of a joining client has the number of samples
    alone, so facts may be fewer."""
    # As JSON, in which a NaN equals itself.
    facts = all(json.dumps(sent.facts.get(name)) == json.dumps(value) for name, value in received.facts.items())
    return facts and (sent.sha256, sent.error) == (received.sha256, received.error)


def in_words(entry: Entry) -> str:
    """A message in words: `client 0, after round 3: train, down, 12 arrays, 1,024 bytes`."""
    after = f", after round {entry.after_round}" if entry.after_round >= 0 else ""
    way = "down" if entry.down else "up"
    return printable(f"client {entry.client}{after}: {entry.kind}, {way}, {entry.arrays} arrays, {entry.bytes:,} bytes")


def table_of(log: MessageLog) -> Table:
    """The messages of a log by round and kind."""
    groups: dict[tuple[int, str, str], list[Entry]] = defaultdict(list)
    for entry in log.entries:
        groups[entry.after_round, entry.kind, entry.direction].append(entry)
    table = Table("after round", "kind", "direction", "clients", "messages", "arrays", "bytes", "errors")
    table.title = printable(log.file)
    for (after, kind, direction), each in groups.items():
        clients = ", ".join(map(str, sorted({one.client for one in each})))
        counts = (len(each), sum(one.arrays for one in each), sum(one.bytes for one in each))
        errors = sum(bool(one.error) for one in each)
        table.add_row(
            *("" if after < 0 else str(after), printable(kind), printable(direction), clients),
            *(f"{count:,}" for count in counts),
            str(errors or ""),
        )
    return table


def table_of_findings(findings: Sequence[Finding]) -> Table:
    """What became of the messages of each client, both directions."""
    counts = Counter((entry.client, entry.down, state) for entry, state in findings)
    states = (UNCHANGED, LOST, FAILED, CHANGED, UNSENT)
    table = Table("client", "direction", *states, title="messages between server and nodes")
    for client, down in sorted(
        {(entry.client, entry.down) for entry, _ in findings}, key=lambda one: (one[0], -one[1])
    ):
        cells = (counts[client, down, state] for state in states)
        table.add_row(str(client), "down" if down else "up", *(f"{count:,}" if count else "" for count in cells))
    return table
