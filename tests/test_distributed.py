"""`--distributed` says which of how many processes this is, or that JAX finds it; anything else is one line.

Where processes agree, this one stands for all; `tests/run/test_several_processes.py` has several.
"""

import atexit
import socket
import threading
from typing import Any

import jax
import pytest

from fdgjax.distributed import (
    ProcessAddress,
    any_stop,
    await_process_0,
    broadcast,
    join_processes,
    process_group,
    split_off,
)
from fdgjax.utils.command import MISTAKE
from fdgjax.utils.errors import UserError


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--distributed=auto"], ProcessAddress()),
        (["-distributed", "auto"], ProcessAddress()),
        (["--distributed", "10.0.0.1:9876,0,2"], ProcessAddress("10.0.0.1:9876", 0, 2)),
        (["--distributed=[::1]:1,4,5"], ProcessAddress("[::1]:1", 4, 5)),
        ([], None),
    ],
)
def test_it_is_taken_out_of_the_words_wherever_it_stands(words: list[str], place: ProcessAddress | None) -> None:
    for argv in (["fdgjax", *words, "--config=fedavg"], ["fdgjax", "--config=fedavg", *words]):
        assert split_off(argv) == (["fdgjax", "--config=fedavg"], place)


@pytest.mark.parametrize(
    "text",
    ["", "yes", "host", "host:1", "host:1,0", "host:1,2,2", "host:1,-1,2", ":1,0,2", "host:0,0,2", "host:99999,0,2"],
)
def test_what_is_none_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="expected --distributed=auto, or --distributed=HOST:PORT,RANK,COUNT") as error:
        split_off(["fdgjax", f"--distributed={text}"])
    assert f"--distributed got '{text}'" in str(error.value)
    assert "\n" not in str(error.value)


def test_no_process_0_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgjax.distributed.JOINING_SECONDS", 0.0)
    monkeypatch.setattr("fdgjax.distributed.time.sleep", lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        await_process_0(address)
    with pytest.raises(UserError, match="reached no process 0 within 0 s") as error:
        await_process_0(address)
    assert "\n" not in str(error.value)


def test_no_cluster_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_found(**options: int) -> None:
        raise ValueError("coordinator_address\nshould be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", none_found)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    with pytest.raises(UserError, match="--distributed=auto joined no other processes") as error:
        join_processes(ProcessAddress())
    assert "\n" not in str(error.value)


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgjax.distributed.is_distributed", lambda: True)


@pytest.mark.usefixtures("several")
def test_a_decision_comes_as_it_was_made_and_a_mistake_as_the_same_line() -> None:
    decision = [7, {"loss": 0.1, "name": "Größe"}, None]
    assert broadcast(lambda: decision) == decision

    def mistaken() -> None:
        raise UserError("got a; expected b")

    with pytest.raises(UserError, match=r"^got a; expected b$"):
        broadcast(mistaken)


@pytest.mark.usefixtures("several")
def test_a_stop_is_seen_once_it_is_asked() -> None:
    asked = threading.Event()
    stop = any_stop(asked)
    assert not stop.is_set()
    asked.set()
    assert stop.is_set()


def no_thread(thread: threading.Thread) -> None:
    """What Python 3.12 answers in a process that exits."""
    raise RuntimeError(f"can't create new thread at interpreter shutdown: {thread}")


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    ("error", "raised", "status"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed:\nConnection closed by peer"), UserError, MISTAKE),
        (jax.errors.JaxRuntimeError("Buffer Definition Event: Gloo failed"), UserError, MISTAKE),
        (UserError("got a; expected b"), UserError, MISTAKE),
        (ValueError("a mistake of ours"), ValueError, 1),
    ],
)
def test_a_process_that_fails_does_not_wait_for_the_others(
    error: Exception, raised: type[Exception], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[Any] = []
    ended: list[object] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(jax.distributed, "shutdown", lambda: ended.append("together"))
    monkeypatch.setattr("os._exit", ended.append)
    with pytest.raises(raised) as found, process_group():
        raise error
    assert "\n" not in str(found.value)
    assert "Gloo" not in str(error) or "the same commands go on from the last checkpoint" in str(found.value)
    (leave,) = at_exit
    with monkeypatch.context() as exiting:
        exiting.setattr(threading.Thread, "start", no_thread)
        leave()
    assert ended == ["together", status]
