"""A node with one process for all messages: how it waits, starts its worker again, and what it refuses."""

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode, Status, SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.nodestate import NodeStateFactory

from fdgjax.deploy import worker
from fdgjax.deploy.node_settings import check_settings
from fdgjax.deploy.processes import keep_running
from fdgjax.deploy.request_handlers import Prepared
from fdgjax.deploy.waiting import (
    LEAST_SECONDS,
    SHARE,
    NeverSentError,
    expect_parts,
    expect_tasks,
    growing_pauses,
    pause,
)
from fdgjax.deploy.warm_node import worker_command
from fdgjax.utils.errors import UserError


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.time, self.slept = 0.0, list[float]()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept.append(seconds)


@given(st.floats(0, 600), st.floats(LEAST_SECONDS, 10))
def test_what_is_waited_for_is_seen_a_tenth_of_its_time_too_late(when: float, most: float) -> None:
    clock = Clock()
    while clock.now() < when:
        clock.sleep(pause(clock.now(), most))
    assert clock.now() - when <= max(LEAST_SECONDS, SHARE * when) + 1e-6
    assert max(clock.slept, default=0.0) <= most


def test_a_wait_begins_anew_with_another_number_of_seconds() -> None:
    """Flower waits for a message, then for its answer, then for the next message."""
    clock = Clock()
    wait: Callable[[float], None] = growing_pauses(clock.sleep, clock.now)
    for seconds in (3.0, 0.5, 3.0):
        begin = len(clock.slept)
        for _ in range(100):
            wait(seconds)
        mine = clock.slept[begin:]
        assert mine[0] == LEAST_SECONDS
        assert mine == sorted(mine)
        assert mine[-1] == seconds


def test_an_answer_whose_rest_never_comes_is_given_up_and_a_late_one_or_a_message_to_come_is_not() -> None:
    """Flower's module waits by the same pauses for a message, for an answer, and for an answer's parts."""
    clock, sent, flower = Clock(), list[str](), ModuleType("flower")
    setattr(flower, "time", SimpleNamespace(sleep=clock.sleep))  # noqa: B010
    setattr(flower, "push_object_contents_from_iterable", lambda contents: sent.extend(contents))  # noqa: B010
    expect_parts(flower, 2.0, clock.now)

    def parts(pauses: int) -> Iterator[str]:
        yield "first"
        for _ in range(pauses):
            flower.time.sleep(0.5)
        yield "second"

    for _ in range(60):
        flower.time.sleep(0.5)
    for _ in range(2):
        flower.push_object_contents_from_iterable(parts(3))
    assert sent == ["first", "second"] * 2
    with pytest.raises(NeverSentError):
        flower.push_object_contents_from_iterable(parts(5))
    for _ in range(60):
        flower.time.sleep(0.5)


class Node(NamedTuple):
    """A SuperNode's own copy of Flower's module, its state with one message and the message's task, and its clock."""

    flower: Any
    state: Any
    task: int
    clock: Clock

    def begun(self, received: bool) -> None:
        """The worker begins the task, receives the message or not, and is killed; its claim ends."""
        self.state.claim_task(self.task)
        self.state.activate_task(self.task)
        if received:
            self.state.get_messages_legacy(is_reply=False)
        self.state.task_token_store[self.task].active_until = datetime.fromtimestamp(0, UTC)

    def sent(self, wait: Callable[[float], None]) -> list[Any]:
        """The answers that the SuperNode sends, while it waits by `wait`."""
        sent = list[Any]()

        def send(message: Any, tree: Any, seconds: float) -> tuple[set[str], str]:
            sent.append(message)
            return set(), ""

        self.flower.time = SimpleNamespace(sleep=wait)
        expect_tasks(self.flower, Status.FINISHED)
        self.flower._push_messages(state=self.state, object_store=self.state.object_store, send=send, push_object=None)
        return sent


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    spec = importlib.util.find_spec("flwr.supernode.start_client_internal")
    assert spec is not None
    assert spec.loader is not None
    flower = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(flower)
    state: Any = NodeStateFactory(ObjectStoreFactory()).state()
    state.set_node_id(1)
    task = state.create_task(TaskType.CLIENT_APP, run_id=1, fab_hash="")
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    message = Message(RecordDict(), 1, MessageType.TRAIN)
    setattr(message.metadata, "_message_id", "request")  # noqa: B010
    state.store_message(message)
    return Node(flower, state, task, Clock())


def test_a_node_whose_worker_ended_before_it_received_the_message_begins_anew(node: Node) -> None:
    node.begun(received=False)
    with pytest.raises(NeverSentError):
        node.sent(node.clock.sleep)


def test_a_node_whose_worker_ended_after_it_received_the_message_sends_flowers_error(node: Node) -> None:
    node.begun(received=True)
    (answer,) = node.sent(node.clock.sleep)
    assert answer.error.code == ErrorCode.CLIENT_APP_CRASHED


def test_a_node_waits_as_long_as_its_task_goes_on_and_an_answer_may_come_with_the_tasks_end(node: Node) -> None:
    def wait(seconds: float) -> None:
        node.clock.sleep(seconds)
        if len(node.clock.slept) == 100:
            node.state.claim_task(node.task)
            node.state.activate_task(node.task)
            (request,) = node.state.get_messages_legacy(is_reply=False)
            node.flower._insert_message(Message(Error(0), reply_to=request), node.state, node.state.object_store)
            node.state.finish_task(node.task, SubStatus.COMPLETED, "")

    assert len(node.sent(wait)) == 1
    assert len(node.clock.slept) == 100


class Desk(NamedTuple):
    """What a worker does to the SuperNode's interface, in its order, and the nodes that it hands on."""

    done: list[tuple[str, Any]]
    nodes: list[dict[str, Prepared]]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A message is a dictionary, which the node answers by its `content`; without one it fails."""
    desk = Desk([], [])

    def answered(message: Any, context: Any, nodes: dict[str, Prepared]) -> str:
        desk.nodes.append(nodes)
        return f"answer to {message['content']}"

    flower = worker.run_clientapp
    monkeypatch.setattr(worker, "reply_to", answered)
    monkeypatch.setattr(worker, "Message", lambda error, reply_to: error.reason)
    monkeypatch.setattr(flower, "pull_task_input", lambda client: (client.message, "context", None, None))
    monkeypatch.setattr(flower, "push_message", lambda client, reply, context: desk.done.append(("reply", reply)))
    monkeypatch.setattr(
        flower, "push_task_output", lambda client, context, status, why: desk.done.append((status, hearts()))
    )
    return desk


def hearts() -> int:
    """The threads that send heartbeats, or do anything else."""
    return threading.active_count()


def client_with(message: Any) -> Any:
    return SimpleNamespace(message=message, SendTaskHeartbeat=lambda request: SimpleNamespace(success=True))


def test_a_worker_keeps_its_node_and_ends_a_task_when_its_heart_has_stopped(desk: Desk) -> None:
    """A heartbeat after the task's end would end the worker."""
    nodes, before = dict[str, Prepared](), hearts()
    worker.answer_task(client_with({"content": 1}), nodes)
    worker.answer_task(client_with({"content": 2}), nodes)
    ended = (SubStatus.COMPLETED, before)
    assert desk.done == [("reply", "answer to 1"), ended, ("reply", "answer to 2"), ended]
    assert all(kept is nodes for kept in desk.nodes)


def test_a_worker_that_fails_says_so_and_ends(desk: Desk) -> None:
    with pytest.raises(SystemExit):
        worker.answer_task(client_with({}), {})
    (_, said), (status, _) = desk.done
    assert "KeyError" in said
    assert status == SubStatus.FAILED


def test_a_message_is_waited_for_whose_task_comes_first() -> None:
    replies = iter([[], [], ["message"]])
    assert worker.once_stored(lambda request: SimpleNamespace(messages_list=next(replies)))(None).messages_list


class EnoughError(Exception):
    """Ends a loop that has no end."""


def test_a_program_that_ends_is_started_again_and_less_and_less_often() -> None:
    waited = list[float]()

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        keep_running(["false"], sleep)
    assert waited == [1.0, 2.0, 4.0]


def test_a_worker_ends_with_its_node_even_if_that_is_killed(tmp_path: Path) -> None:
    """The worker's own function, in a process whose parent is killed and can clean nothing up."""
    own = "import fdgjax.deploy.processes as e, threading, time; threading.Thread(target=e.end_with_parent).start(); "
    worker = f"{own}open({str(tmp_path / 'up')!r}, 'w').close(); time.sleep(60)"
    program = f"from fdgjax.deploy.processes import keep_running; keep_running([{sys.executable!r}, '-c', {worker!r}])"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        while not (tmp_path / "up").exists():
            assert node.poll() is None
        node.kill()
        # The pipe is the worker's standard output, too: it closes when both have ended.
        assert node.stdout.read() == b""


def test_the_worker_connects_to_its_own_node() -> None:
    command = worker_command(["--superlink", "server:8000", "--port", "9095", "--node-config", "client=0 port=1"])
    assert command[-2:] == ["127.0.0.1:9095", ""]
    secured = worker_command(["--host=::1", "--port=9095", "--ssl-ca-certfile", "ca.crt"])
    assert secured[-2:] == ["[::1]:9095", "ca.crt"]


@pytest.mark.parametrize("word", ["--isolation=process", "--superexec-auth-secret-file=secret"])
def test_what_the_node_chooses_itself_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="chooses itself"):
        worker_command(["--insecure", word])


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            "client=0 table=a.csv states='s'",
            "--node-config got client=0 table=a.csv states='s', which cannot be read; ",
        ),
        ("client=0 table='no.csv' states='s'", "no.csv, which is not there"),
        ("client=0 table='a.csv' states='s' held_out='no.csv'", "no.csv, which is not there"),
        ("client=0 table='a.csv' states='s' smalest=3", "did you mean 'smallest'?"),
        ("own.toml", "--node-config got own.toml, which cannot be read"),
        ("client=0 table='a.csv' states='s' held_out='none'", ""),
    ],
)
def test_settings_are_checked_before_the_node_starts(
    own: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").touch()
    words = ["--insecure", "--superlink", "server:8000", "--node-config", own]
    if not said:
        check_settings(words)
        return
    with pytest.raises(UserError) as error:
        check_settings(words)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
