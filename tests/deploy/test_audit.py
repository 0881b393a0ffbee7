"""Both sides' logs of messages: what is sent is logged, and what was changed on its way is found."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdgjax.cli.flower import main as flower
from fdgjax.deploy import message_log
from fdgjax.deploy.audit import CHANGED, FAILED, LOST, UNCHANGED, UNSENT, compare, entry_of, read_log
from fdgjax.deploy.message_log import MESSAGES, Audited, append, arrays_sha256, log_message
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.own_samples import OwnPlaces
from fdgjax.deploy.request_handlers import serve
from fdgjax.deploy.wire import Reply, Request
from fdgjax.utils.errors import UserError


def answer(settings: NodeSettings, request: Request, nodes: Any = None) -> Reply:
    """What a node would: twice of what it is sent."""
    del nodes
    return Reply(
        settings.client, {path: 2 * leaf for path, leaf in request.arrays.items()}, {"samples": 3, "loss": 0.1}
    )


class Wire:
    """A transport to nodes that log, which adds `noise` to what it carries up, and loses what is for those `away`."""

    def __init__(self, folder: Path, clients: int = 2) -> None:
        self.nodes = [NodeSettings(i, OwnPlaces(folder), folder / f"node{i}") for i in range(clients)]
        self.noise, self.away = 0.0, set[int]()
        self.samples: dict[int, int] = {}

    def join(self, terms: str, clients: int) -> dict[int, int]:
        asked = Request("join", -1, terms, {}, {})
        new = [one for one in self.nodes[:clients] if one.client not in self.samples]
        self.samples |= {one.client: int(serve(one, asked).facts["samples"]) for one in new}
        return self.samples

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        replies = [serve(self.nodes[one.client], one) for one in requests if one.client not in self.away]
        if not self.noise:
            return replies
        return [one._replace(arrays={path: leaf + self.noise for path, leaf in one.arrays.items()}) for one in replies]


@pytest.fixture
def wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr("fdgjax.deploy.request_handlers.handled", answer)
    return Wire(tmp_path)


def rounds(wire: Wire, folder: Path, count: int = 2, words: str = "terms") -> list[Path]:
    """Some rounds over the wire; the logs that they leave, the server's first."""
    there = Audited(wire, folder / "server" / MESSAGES)
    assert there.join(words, 2) == there.join(words, 2) == {0: 3, 1: 3}
    for number in range(count):
        arrays = {"['w']": np.full((2, 3), number, np.float32), "['n']": np.int32(number)}
        there.exchange([Request("train", client, words, arrays, {"round": number}) for client in range(2)], 0.0)
    return [folder / "server" / MESSAGES, *(folder / f"node{client}" / MESSAGES for client in range(2))]


def states(files: list[Path]) -> dict[str, int]:
    found = [one.state for one in compare([entry for file in files for entry in read_log(file).entries])]
    return {state: found.count(state) for state in set(found)}


def test_both_sides_log_each_message_with_the_same_checksum(wire: Wire, tmp_path: Path) -> None:
    files = rounds(wire, tmp_path)
    # Two clients; one join and two rounds, each down and up.
    assert states(files) == {UNCHANGED: 2 * 3 * 2}
    ours, theirs, _ = (read_log(file) for file in files)
    assert len(ours.entries) == 12
    down = [one for one in ours.entries if one.direction == "sent" and one.client == 0 and one.kind == "train"]
    got = [one for one in theirs.entries if one.direction == "received" and one.kind == "train"]
    assert [one.sha256 for one in down] == [one.sha256 for one in got]
    assert [(one.after_round, one.arrays, one.bytes) for one in got] == [(0, 2, 28), (1, 2, 28)]
    assert flower(["fdgjax flower", "--audit", *map(str, files)]) == 0


def test_a_message_that_is_changed_on_its_way_is_found(
    wire: Wire, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wire.noise = 1e-7
    files = rounds(wire, tmp_path, count=1)
    assert states(files) == {UNCHANGED: 6, CHANGED: 2}
    assert flower(["fdgjax flower", "--audit", *map(str, files)]) == 1
    assert "client 1, after round 0: train, up, 2 arrays" in capsys.readouterr().out


def test_a_message_that_nobody_sent_is_found_and_one_that_is_late_is_no_mistake(wire: Wire, tmp_path: Path) -> None:
    wire.away = {1}
    files = rounds(wire, tmp_path, count=1)
    assert states(files) == {UNCHANGED: 6, LOST: 1}
    assert flower(["fdgjax flower", "--audit", *map(str, files)]) == 0
    serve(wire.nodes[1], Request("train", 1, "terms", {"['more']": np.ones(1)}, {"round": 7}))
    assert states(files) == {UNCHANGED: 6, LOST: 2, UNSENT: 1}
    assert flower(["fdgjax flower", "--audit", *map(str, files)]) == 1


def test_the_servers_word_for_a_node_that_failed_is_no_mistake(wire: Wire, tmp_path: Path) -> None:
    files = rounds(wire, tmp_path, count=1)
    asked = Request("train", 1, "terms", {}, {"round": 0})
    log_message(files[0], "server", "received", 1, asked, Reply(1, {}, {}, "failed 3 times"))
    assert states(files) == {UNCHANGED: 8, FAILED: 1}
    assert flower(["fdgjax flower", "--audit", *map(str, files)]) == 0
    log_message(files[0], "server", "received", 1, asked, Reply(1, {"['w']": np.ones(1)}, {}, "with arrays"))
    assert states(files) == {UNCHANGED: 8, FAILED: 1, CHANGED: 1}


def test_a_fact_that_is_changed_is_found(wire: Wire, tmp_path: Path) -> None:
    server, node, _ = rounds(wire, tmp_path, count=1)
    node.write_text(node.read_text().replace('"loss": 0.1', '"loss": 0.2'))
    # The server's line of a joining client has no loss.
    assert states([server, node]) == {UNCHANGED: 3, CHANGED: 1}


def test_other_runs_in_a_nodes_log_are_left_out(wire: Wire, tmp_path: Path) -> None:
    files = rounds(wire, tmp_path, count=1)
    wire.samples.clear()
    rounds(wire, tmp_path / "earlier", words="other terms")
    assert states(files) == {UNCHANGED: 8}
    other = tmp_path / "earlier" / "server" / MESSAGES
    assert states([other, files[1]]) == {UNCHANGED: 6}
    rounds(Wire(tmp_path / "third"), tmp_path / "third", words="third terms")
    with pytest.raises(UserError, match="no run in common"):
        states([tmp_path / "third" / "server" / MESSAGES, files[1]])


def test_a_message_that_cannot_be_logged_is_not_sent(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Audited(wire, tmp_path / "server" / MESSAGES)
    there.join("terms", 2)
    (tmp_path / "node0" / MESSAGES).unlink()
    (tmp_path / "node0" / MESSAGES).mkdir()
    requests = [Request("train", client, "terms", {"x": np.ones(2)}, {"round": 0}) for client in range(2)]
    refused, fine = there.exchange(requests, 0.0)
    assert not fine.error
    assert "a message that cannot be logged is not sent" in refused.error
    assert (refused.arrays, refused.facts) == ({}, {})
    # A disk that is full takes a part of the line.
    monkeypatch.setattr("os.write", lambda number, content: 3)
    before = len(read_log(tmp_path / "node1" / MESSAGES).entries)
    with pytest.raises(UserError, match=r"3 of \d+ bytes were written"):
        there.exchange(requests, 0.0)
    assert len(read_log(tmp_path / "node1" / MESSAGES).entries) == before


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / MESSAGES
    log_message(file, "node", "received", 0, Request("join", -1, "terms", {}, {}))
    whole = file.read_bytes()
    with file.open("ab") as stream:
        stream.write(whole[:40])
    log_message(file, "node", "received", 0, Request("join", -1, "terms", {}, {}))
    found = read_log(file)
    assert (len(found.entries), found.damaged) == (2, [2])
    assert file.read_bytes().startswith(whole)
    assert flower(["fdgjax flower", "--audit", str(file)]) == 1
    assert "lines that cannot be read: 2" in capsys.readouterr().out


def test_a_line_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that lines of two processes do not mix."""
    written, write = list[bytes](), os.write

    def recorded(number: int, content: bytes) -> int:
        written.append(content)
        return write(number, content)

    monkeypatch.setattr("os.write", recorded)
    for line in ("a\n", "b\n"):
        append(tmp_path / MESSAGES, line)
    assert written == [b"a\n", b"b\n"]
    assert (tmp_path / MESSAGES).read_text() == "a\nb\n"


@pytest.mark.parametrize("content", ["", "{}\n", "[1]\n", "no json\n"])
def test_what_is_no_log_is_refused(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text(content)
    assert flower(["fdgjax flower", "--audit", str(tmp_path / "file")]) == 2
    assert "holds no message" in capsys.readouterr().err
    assert flower(["fdgjax flower", "--audit", str(tmp_path / "none")]) == 2


ARRAYS = st.dictionaries(
    st.text(max_size=3),
    st.tuples(st.sampled_from(["f4", "f8", "i4", "u1", "?"]), st.lists(st.integers(0, 3), max_size=3)).map(
        lambda one: np.arange(np.prod(one[1], dtype=int)).reshape(one[1]).astype(one[0])
    ),
    max_size=3,
)


@pytest.mark.slow
@given(arrays=ARRAYS)
def test_a_checksum_is_of_content_and_not_of_order_or_layout(arrays: dict[str, np.ndarray]) -> None:
    wanted = hashlib.sha256(
        b"".join(
            json.dumps([path, str(leaf.dtype), list(leaf.shape)]).encode() + b"\n" + leaf.tobytes()
            for path, leaf in sorted(arrays.items())
        )
    )
    assert arrays_sha256(arrays) == wanted.hexdigest()
    turned = {path: leaf.copy(order="F") for path, leaf in reversed(arrays.items())}
    assert arrays_sha256(turned) == wanted.hexdigest()


def test_a_checksum_knows_names_types_shapes_and_bits() -> None:
    one = np.array([1.0, 0.0], np.float32)
    others: list[dict[str, np.ndarray]] = [
        {"b": one},
        {"a": one.astype(np.float64)},
        {"a": one[None]},
        {"a": np.array([1.0, -0.0], np.float32)},
        {"a": np.asarray(jnp.asarray(one, jnp.bfloat16))},
        {"a": one, "b": one[:0]},
        {},
    ]
    assert len({arrays_sha256(arrays) for arrays in ({"a": one}, *others)}) == len(others) + 1


def test_an_entry_reads_what_was_written() -> None:
    reply = Reply(1, {"x": np.ones(2)}, {"loss": float("nan"), "bytes": b"12", "long": "x" * 2000}, "")  # type: ignore[dict-item]
    line = message_log.entry("node", "sent", 1, Request("train", 1, "terms", {}, {"round": 4}), reply)
    found = entry_of(json.loads(json.dumps(line)))
    assert (found.after_round, found.bytes, found.down) == (4, 16, False)
    assert found.facts["long"].startswith("2000 bytes with SHA-256 ")
    assert found.facts["bytes"].startswith("2 bytes with SHA-256 ")
