"""What goes wrong between real processes: nodes killed in each phase, and what a node says before it starts."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from subprocess import Popen

import pytest

from fdgjax.cli.flower import main as flower
from fdgjax.config import make_config, read_config
from fdgjax.deploy.app import ServerSettings, write_app
from fdgjax.deploy.message_log import MESSAGES
from tests.deploy.deployed import Running, deploy
from tests.deploy.loopback import (
    LINK,
    Place,
    Secured,
    flwr,
    free_port,
    processes,
    start_link,
    start_node,
    start_run,
    still_there,
    workers_of,
)
from tests.deploy.trial import Trial, compare, make_trial

pytest.importorskip("flwr")

from fdgjax.deploy.keys import make_keys


def trial(cache: Path, rounds: int) -> Trial:
    """Two clients of a few digits each, which are evaluated; SCAFFOLD keeps state at both sides."""
    config = make_config("scaffold", "rotated_digits")
    config.model.name = "digits_cnn"
    config.data.cache_dir = str(cache)
    config.data.clients = 2
    config.update({"rounds": rounds, "local_epochs": 1, "batch_size": 6, "devices": 1, "eval_every": 1})
    return make_trial(read_config(config), most=12)


def works_on(log: Path, kind: str) -> bool:
    """Whether a node has logged a request of this kind and not yet its answer, or has just answered the shortest."""
    if not log.exists():
        return False
    *_, last = log.read_text().splitlines() or ["{}"]
    try:
        entry = json.loads(last)
    except ValueError:  # half a line
        return False
    return bool(entry.get("kind") == kind and (entry["direction"] == "received" or kind == "join"))


def killing(
    folder: Path, plan: Sequence[tuple[int, str]], kill: Callable[[Running, int], None], killed: list[str]
) -> Callable[[int, Running], None]:
    """A disturbance: for each client and kind of message in turn, the client is killed while it works on one."""

    def watch(running: Running) -> None:
        for client, kind in plan:
            while not works_on(folder / f"node{client}" / "states" / MESSAGES, kind):
                if running.programs["run"].poll() is not None:
                    return
                time.sleep(0.002)
            kill(running, client)
            killed.append(kind)

    watching: list[threading.Thread] = []

    def disturb(done: int, running: Running) -> None:
        del done
        if not watching:
            watching.append(threading.Thread(target=watch, args=(running,), daemon=True))
            watching[0].start()

    return disturb


def kill_node(running: Running, client: int) -> None:
    os.killpg(running.programs[f"node{client}"].pid, signal.SIGKILL)


def kill_worker(running: Running, client: int) -> None:
    for worker in workers_of(running.programs[f"node{client}"]):
        os.kill(worker, signal.SIGKILL)


def plan_of(*kinds: str) -> list[tuple[int, str]]:
    """The clients in turn."""
    return [(place % 2, kind) for place, kind in enumerate(kinds)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("warm", "kill", "plan"),
    [
        (False, kill_node, plan_of("join", "train", "evaluate", "finish")),
        (True, kill_node, plan_of("join", "train", "evaluate", "finish")),
        # Flower takes a minute to see that the process that answers is gone while its node lives.
        (True, kill_worker, plan_of("join")),
    ],
    ids=["process for each message", "node with one process", "its process alone"],
)
def test_a_node_that_is_killed_in_any_phase_changes_nothing(
    warm: bool, kill: Callable[[Running, int], None], plan: list[tuple[int, str]], tmp_path: Path, cache: Path
) -> None:
    those, said, killed = trial(cache, rounds=1), list[str](), list[str]()
    deploy(those, tmp_path, Secured(warm=warm), said.append, disturb=killing(tmp_path, plan, kill, killed))
    assert killed == [kind for _, kind in plan]
    found = compare(those, tmp_path)
    assert len(said) == 1
    assert max(found.server, found.rows) <= 1e-5 * max(1, found.largest)
    told = (tmp_path / "run.log").read_text()
    assert "2 of 2 clients have written their model" in told
    assert ("failed (ClientApp stopped responding.); asked again" in told) is (kill is kill_worker)
    assert len(list(tmp_path.glob("node*/states/*/model.safetensors"))) == 2
    logs = [tmp_path / "server" / MESSAGES, *sorted(tmp_path.glob("node*/states/messages.jsonl"))]
    assert flower(["fdgjax flower", "--audit", *map(str, logs)]) == 0
    assert still_there(tmp_path) == []


def last_line(file: Path) -> str:
    return file.read_text().splitlines()[-1]


@pytest.mark.slow
def test_the_servers_mistake_is_one_line_of_the_run_and_its_status(tmp_path: Path, cache: Path) -> None:
    workdir, place = tmp_path / "server", Place(tmp_path, free_port(), Secured())
    write_app(tmp_path / "app", ServerSettings(trial(cache, rounds=1).terms, workdir))
    workdir.mkdir()
    (workdir / "letter.txt").write_text("of somebody")
    with processes(tmp_path) as keep:
        keep(start_link(place))
        assert keep(start_run(place, tmp_path / "app")).wait(60) == 0
        (told,) = (
            line
            for line in (tmp_path / "run.log").read_text().splitlines()
            if "is not empty and holds no config.json" in line
        )
        assert "Traceback" not in (tmp_path / "run.log").read_text()
        (run,) = json.loads(flwr(place, "list", LINK, "--format", "json"))["runs"]
    assert told.startswith("fdgjax: ")
    assert run["status"] == "finished:failed"
    assert told.removeprefix("fdgjax: ") in json.dumps(run)


@pytest.mark.slow
def test_expired_certificates_are_one_line_at_the_node(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", 1, [], 8000, datetime.now(UTC) - timedelta(days=31))
    place = Place(tmp_path, free_port(), Secured(tmp_path / "keys", warm=True))
    with processes(tmp_path) as keep:
        keep(start_link(place))
        node = keep(start_node(place, 0, f"client=0 images='{tmp_path}' states='{tmp_path}'"))
        assert node.wait(60) == 2
    assert "is not trusted (certificate has expired)" in last_line(tmp_path / "node0.log")
    assert len((tmp_path / "node0.log").read_text().splitlines()) == 1


@pytest.mark.slow
def test_nodes_of_another_version_or_with_another_clock_say_so_and_the_others_train(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes say that they are client 0, and would take its place."""
    those, said, strangers = trial(cache, rounds=2), list[str](), list[Popen[bytes]]()
    older, later = tmp_path / "older", tmp_path / "later"
    (older / "fdgjax-0.0.7.dist-info").mkdir(parents=True)
    (older / "fdgjax-0.0.7.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fdgjax\nVersion: 0.0.7\n")
    later.mkdir()
    (later / "sitecustomize.py").write_text("import time\nnow = time.time\ntime.time = lambda: now() + 3600\n")

    def disturb(done: int, running: Running) -> None:
        for number, first in enumerate([older, later] if not strangers else []):
            words = f"client=0 images='{tmp_path / 'node0' / 'images'}' states='{tmp_path / first.name / 'states'}'"
            with monkeypatch.context() as other:
                other.setenv("PYTHONPATH", os.pathsep.join([str(first), os.environ.get("PYTHONPATH", "")]))
                strangers.append(running.keep(start_node(running.place, 8 + number, words)))

    deploy(those, tmp_path, Secured(tmp_path / "keys", warm=True), said.append, disturb=disturb)
    found = compare(those, tmp_path)
    assert len(said) == 2
    assert max(found.server, found.rows) <= 1e-5 * max(1, found.largest)
    told = (tmp_path / "run.log").read_text()
    expected = f"is refused: the server has fdgjax {version('fdgjax')} and this node 0.0.7; expected the same version"
    assert expected in told
    assert "this node 0.0.7; expected the same version" in (tmp_path / "node8.log").read_text()
    assert not (older / "states" / MESSAGES).exists()
    assert strangers[1].returncode == 2
    assert "set the clock" in last_line(tmp_path / "node9.log")
