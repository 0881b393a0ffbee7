"""A team decides as one: process 0 tells, a stop asked of any is seen by all at the same look, a loss ends the others.

Here each process is a thread with its end of a line; `tests/run/test_several_processes.py` has real ones.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fdgjax.team import ALONE, LOST, Team, accept, following, leading, line_of, reach
from tests.runs import StopAfter, never

SIZE = 3


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection over loopback: a line sets TCP's options."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        caller = socket.create_connection(server.getsockname())
        return server.accept()[0], caller


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been printed, and the status, where a process ends."""
    found: list[Any] = []
    monkeypatch.setattr("fdgjax.team.refuse", found.append)
    monkeypatch.setattr("fdgjax.team.leave", found.append)
    monkeypatch.setattr("fdgjax.team.AGREEING_SECONDS", 0.0)
    return found


@pytest.fixture
def sockets() -> Iterator[dict[int, tuple[socket.socket, socket.socket]]]:
    """Process 0's end and the other's, by the other's rank."""
    pairs = {rank: tcp_pair() for rank in range(1, SIZE)}
    yield pairs
    for one in (end for pair in pairs.values() for end in pair):
        one.close()


@pytest.fixture
def teams(sockets: dict[int, tuple[socket.socket, socket.socket]], ended: list[Any]) -> list[Team]:
    def line(one: socket.socket) -> Any:
        return line_of(one, one.makefile("r", encoding="utf-8"))

    left = threading.Event()
    lines = {rank: line(mine) for rank, (mine, _) in sockets.items()}
    others = [following(line(theirs), rank, SIZE, left) for rank, (_, theirs) in sockets.items()]
    return [leading(lines, SIZE, left), *others]


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result(timeout=30) for one in [pool.submit(call) for call in calls]]


def test_all_hear_what_process_0_alone_decides(teams: list[Team]) -> None:
    asked: list[int] = []

    def decide(rank: int) -> list[Any]:
        asked.append(rank)
        return [rank, {"loss": 0.1}]

    said = at_once([lambda team=team: team.tell(lambda: decide(team.rank)) for team in teams])
    assert said == [[0, {"loss": 0.1}]] * SIZE
    assert asked == [0]
    assert [team.leads for team in teams] == [True, False, False]
    assert ALONE.leads
    assert ALONE.tell(lambda: 7) == 7


@pytest.mark.parametrize("asked", range(SIZE))
def test_a_stop_asked_of_any_is_seen_by_all_at_the_same_look(teams: list[Team], asked: int) -> None:
    def look(team: Team) -> list[bool]:
        stop = team.agreed(StopAfter(3) if team.rank == asked else never())
        seen = []
        while not seen or not seen[-1]:
            seen.append(stop.is_set())
        return seen

    seen = at_once([lambda team=team: look(team) for team in teams])
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) > 3, "nobody stops before it is asked"


@pytest.mark.parametrize("lost", range(SIZE))
def test_a_lost_process_ends_all_others_with_one_line_each(
    teams: list[Team],
    sockets: dict[int, tuple[socket.socket, socket.socket]],
    ended: list[Any],
    lost: int,
) -> None:
    for ends in sockets.values() if lost == 0 else [(None, sockets[lost][1])]:
        one = ends[0] if lost == 0 else ends[1]
        assert one is not None
        one.shutdown(socket.SHUT_RDWR)
    # The lost one, here alive, has the ends of its own lines to report besides.
    told = f"process {lost} of {SIZE} was lost"
    wait_for(lambda: sum(told in str(line) for line in ended) == SIZE - 1 and ended.count(LOST) >= SIZE - 1)
    said = [line for line in ended if line != LOST]
    assert all("the same commands go on from the last checkpoint" in line and "\n" not in line for line in said)


def wait_for(done: Callable[[], bool]) -> None:
    clock = threading.Event()
    for _ in range(1000):
        if done():
            return
        clock.wait(0.01)
    pytest.fail("it never came")


def test_a_stranger_who_does_not_know_the_word_gets_no_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        stranger = socket.create_connection(("127.0.0.1", port))
        stranger.sendall(b"another 1\n")
        letter = f'["word", {port}, ["127.0.0.1"]]'
        lines, _ = at_once([lambda: accept(server, "word", 2), lambda: reach(letter, 1)])
        stranger.close()
    assert list(lines) == [1]
