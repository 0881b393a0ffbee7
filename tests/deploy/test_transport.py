"""Flower's messages in one process, over a grid whose nodes come and go at chosen moments."""

import math
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fdgjax.deploy.flower_transport import (
    FlowerTransport,
    from_content,
    from_record,
    from_reply,
    reply_content,
    to_content,
    to_record,
)
from fdgjax.deploy.leaves import Leaves
from fdgjax.deploy.waiting import retry_soon
from fdgjax.deploy.wire import Reply, Request
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of


class Info(NamedTuple):
    node_id: int
    last_activated_at: str
    name: str


class Grid:
    """Flower's grid as far as the transport knows it. `work` answers a request of a node, or None for no answer;
    the node's program fails at the next `failures` ones."""

    def __init__(self, nodes: list[Info], work: Callable[[int, Request], Reply | None]) -> None:
        self.nodes, self.work, self.log = nodes, work, list[tuple[int, str]]()
        self.sent: dict[str, Message] = {}
        self.failures = 0

    def get_nodes(self) -> list[Info]:
        return self.nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = name = str(len(self.log))
            self.log.append((message.metadata.dst_node_id, from_content(message.content).action))
            self.sent[name] = message
            names.append(name)
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Message]:
        replies = []
        for name in list(names):
            message = self.sent[name]
            if self.failures:
                self.failures -= 1
                replies.append(Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "a bug"), reply_to=message))
                continue
            reply = self.work(message.metadata.dst_node_id, from_content(message.content))
            if reply is not None:
                replies.append(Message(reply_content(reply), reply_to=message))
        return replies


class Run(NamedTuple):
    run_id: int = 1
    node_id: int = 1
    task_id: int = 1


@pytest.fixture(autouse=True)
def within_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgjax.deploy.flower_transport.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("flwr.app.message.message.TaskIdentity", Run())


def answer(node: int, request: Request) -> Reply:
    """Node 10 is client 0, node 11 client 1."""
    return Reply(node - 10, request.arrays, {"samples": node, "round": request.facts.get("round", 0)})


def transport(grid: Grid, named: bool = True) -> FlowerTransport:
    grid_: Any = grid
    there = FlowerTransport(grid_, named, lambda line: None)
    there.clients = len(grid.nodes)
    return there


def test_arrays_travel_as_their_own_bytes() -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 2), np.int32), "c": np.array(True)}
    record = to_record(arrays)
    assert sum(len(array.data) for array in record.values()) == bytes_of(arrays)
    found = from_record(record)
    assert all(np.array_equal(found[path], leaf) and found[path].dtype == leaf.dtype for path, leaf in arrays.items())


@pytest.mark.parametrize("arrays", [{}, {"none": np.zeros((0, 2), np.int32)}, {"a": np.ones(3), "b": np.zeros(())}])
def test_arrays_come_back_from_what_flower_sends(arrays: Leaves) -> None:
    """Flower itself does not read an array of no bytes."""
    content = RecordDict({"arrays": to_record(arrays)})
    objects = get_all_nested_objects(content)
    sent = {name: each.deflate() for name, each in objects.items()}
    back: Any = inflate_object_from_contents(content.object_id, sent)
    found = from_record(back["arrays"])
    assert len(objects) <= 4, "the record, its arrays as one, and the one's bytes"
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[path], leaf) and found[path].dtype == leaf.dtype for path, leaf in arrays.items())


def test_a_node_that_comes_back_is_asked_again() -> None:
    """It is known by the moment of its activation: its number stays, and what it was asked before is lost."""
    grid = Grid([Info(10, "monday", "client0"), Info(11, "monday", "client1")], answer)
    there = transport(grid)
    assert there.join("terms", 2) == {0: 10, 1: 11}
    polls: list[int] = []

    def lost(node: int, request: Request) -> Reply | None:
        if request.action == "join" or node == 10:
            return answer(node, request)
        polls.append(node)
        if len(polls) == 3:
            grid.nodes = [grid.nodes[0], Info(11, "tuesday", "client1")]
        return answer(node, request) if len(polls) > 5 else None

    grid.work = lost
    requests = [Request("train", client, "terms", {"x": np.ones(2)}, {"round": 4}) for client in range(2)]
    replies = there.exchange(requests, 0.0)
    assert sorted(reply.client for reply in replies) == [0, 1]
    assert grid.log.count((11, "train")) == 2
    assert grid.log.count((10, "train")) == 1


def test_a_round_ends_at_its_deadline() -> None:
    grid = Grid([Info(10, "monday", "client0"), Info(11, "monday", "client1")], answer)
    there = transport(grid)
    there.join("terms", 2)
    grid.work = lambda node, request: answer(node, request) if node == 10 else None
    requests = [Request("train", client, "terms", {}, {"round": 0}) for client in range(2)]
    assert [reply.client for reply in there.exchange(requests, 0.05)] == [0]


def test_an_answer_that_broke_off_is_asked_for_again() -> None:
    """Flower says so in the server's own name; a node that lives, or comes back, answers once more."""
    said, grid = list[str](), Grid([Info(10, "monday", "client0"), Info(11, "monday", "client1")], answer)
    there = FlowerTransport(cast(Any, grid), True, said.append)
    there.join("terms", 2)
    plain, broken = grid.pull_messages, list[str]()

    def breaks_off(names: Iterable[str]) -> list[Message]:
        (own, *others) = sorted(names)
        if broken:
            return plain([own, *others])
        broken.append(own)
        lost = Message(Error(ErrorCode.MESSAGE_UNAVAILABLE, "incomplete"), reply_to=grid.sent[own])
        lost.metadata.__dict__["_src_node_id"] = 1
        return [lost, *plain(others)]

    grid.pull_messages = breaks_off  # type: ignore[method-assign]
    requests = [Request("train", client, "terms", {}, {"round": 0}) for client in range(2)]
    assert sorted(reply.client for reply in there.exchange(requests, 0.0)) == [0, 1]
    assert said[-1] == "client 0 failed (incomplete); asked again"


def test_parts_of_an_answer_are_waited_for_until_the_deadline() -> None:
    limits, flower = list[float](), ModuleType("flower")
    grid = Grid([Info(10, "monday", "client0")], answer)
    there = transport(grid)
    setattr(flower, "pull", lambda initial_backoff, max_time: limits.append(max_time))  # noqa: B010
    retry_soon(flower, "pull", there.left)
    grid.work = lambda node, request: flower.pull() or answer(node, request)
    there.join("terms", 1)
    for deadline in (60.0, 0.0):
        there.exchange([Request("train", 0, "terms", {}, {"round": 0})], deadline)
    assert limits[0] == limits[2] == math.inf
    assert 0 < limits[1] <= 60


def test_a_key_is_good_for_its_own_client_alone() -> None:
    grid = Grid([Info(10, "monday", "client1"), Info(11, "monday", "client1")], answer)
    there = transport(grid)
    there.look()
    there.look()
    assert set(there.samples) == {1}
    free = transport(Grid(grid.nodes, answer), named=False)
    free.look()
    assert set(free.samples) == {0, 1}


def test_a_node_of_another_version_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever side is older; a version that tells nothing is one before this was asked."""
    request = Request("join", -1, "terms", {}, {})
    sent, said = to_content(request), list[str]()
    with monkeypatch.context() as other:
        other.setattr("fdgjax.deploy.flower_transport.version", lambda name: "9.9")
        with pytest.raises(UserError, match=r"the server has fdgjax .* and this node 9\.9; expected the same version"):
            from_content(sent)
        answered = reply_content(Reply(0, {}, {"samples": 3}))
    assert "the node has fdgjax 9.9 and the server" in from_reply(answered).error
    del answered.config_records["facts"]["version"]
    assert "the node has fdgjax one that does not tell its version" in from_reply(answered).error
    assert "\n" not in from_reply(answered).error
    # The node itself says so to a server of another version, which then asks no more of it.
    refused: Any = Grid([Info(10, "monday", "client0")], lambda node, request: Reply(0, {}, {}, "expected the same"))
    there = FlowerTransport(refused, True, said.append)
    there.look()
    there.look()
    assert said == ["node 10 is refused: expected the same"]
    assert there.samples == {}


def test_a_node_whose_program_fails_is_asked_again_but_not_for_ever() -> None:
    said, grid = list[str](), Grid([Info(10, "monday", "client0")], answer)
    there = FlowerTransport(cast(Any, grid), True, said.append)
    grid.failures = 1
    assert there.join("terms", 1) == {0: 10}
    assert said[1] == "node 10 failed (a bug); asked again"
    grid.failures = 2
    requests = [Request("train", 0, "terms", {}, {"round": 0})]
    assert not there.exchange(requests, 0.0)[0].error
    grid.failures = 99
    (reply,) = there.exchange(requests, 0.0)
    assert reply.error == "failed 3 times (a bug); expected an answer; see the node's log"
