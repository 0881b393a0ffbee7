"""Real processes: a federation by Flower on this machine, killed in part, ends with the simulation's numbers."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fdgjax.config import make_config, read_config
from fdgjax.deploy.account import ACCOUNT, SECRET, read_account
from tests.deploy.deployed import Running, deploy
from tests.deploy.loopback import Secured, start_node, still_there, workers_of
from tests.deploy.trial import Trial, compare, make_trial

pytest.importorskip("flwr")


def trial(cache: Path, rounds: int, name: str = "scaffold", **changes: Any) -> Trial:
    """Two clients of a few digits each; SCAFFOLD keeps state at both sides."""
    config = make_config(name, "rotated_digits")
    config.update(changes)
    config.update(changes)
    config.model.name = "digits_cnn"
    config.data.cache_dir = str(cache)
    config.data.clients = 2
    config.update({"rounds": rounds, "local_epochs": 1, "batch_size": 6, "devices": 1})
    return make_trial(read_config(config), most=12)


@pytest.mark.slow
def test_a_federation_of_which_a_node_is_killed_ends_with_the_simulations_numbers(tmp_path: Path, cache: Path) -> None:
    """With TLS and authentication: a node without a registered key is refused, one that is killed comes back."""
    from fdgjax.deploy.keys import write_node_key

    those, happened = trial(cache, rounds=3), list[str]()

    def disturb(done: int, running: Running) -> None:
        if not happened:
            write_node_key(tmp_path / "keys", "stranger")
            words = f"client=0 images='{tmp_path / 'node0' / 'images'}' states='{tmp_path / 'stranger'}'"
            running.keep(start_node(running.place, 9, words, tmp_path / "keys" / "stranger"))
            happened.append("a stranger came")
        if done == 1 and len(happened) == 1:
            os.killpg(running.programs["node1"].pid, signal.SIGKILL)
            time.sleep(3)
            running.programs["node1"] = running.node(1)
            happened.append("a node was killed")

    said = list[str]()
    deploy(those, tmp_path, Secured(tmp_path / "keys", authentication=True), said.append, disturb=disturb)
    found = compare(those, tmp_path)
    assert len(happened) == 2
    assert len(said) == 3
    assert max(found.server, found.rows) <= 1e-5 * max(1, found.largest)
    assert not (tmp_path / "stranger" / "compiled").exists()
    assert still_there(tmp_path) == []


@pytest.mark.slow
def test_warm_nodes_whose_worker_or_node_is_killed_end_with_the_simulations_numbers(
    tmp_path: Path, cache: Path
) -> None:
    """Each node has one process for all messages: it is started again, and it ends with its node."""
    those, happened = trial(cache, rounds=4), list[int]()

    def disturb(done: int, running: Running) -> None:
        if done in (1, 2) and len(happened) < done:
            node = running.programs[f"node{done - 1}"]
            end = time.monotonic() + 10
            while not (found := workers_of(node)):
                assert time.monotonic() < end
            (worker,) = found
            happened.append(worker)
            os.kill(worker if done == 1 else node.pid, signal.SIGKILL)
            while Path(f"/proc/{worker}").exists():
                assert time.monotonic() < end

    said = list[str]()
    deploy(those, tmp_path, Secured(warm=True), said.append, disturb=disturb)
    found = compare(those, tmp_path)
    assert len(happened) == 2
    assert len(said) == 4
    assert max(found.server, found.rows) <= 1e-5 * max(1, found.largest)
    assert "Start `flwr-clientapp` process" not in (tmp_path / "node0.log").read_text()
    assert still_there(tmp_path) == []


@pytest.mark.slow
def test_nodes_that_protect_their_samples_send_no_loss_and_say_what_they_have_spent(
    tmp_path: Path, cache: Path
) -> None:
    privacy = {"unit": "sample", "epsilon": 8.0, "delta": 1e-3}
    those = trial(cache, 2, "fedavg", method={"weighting": "uniform"}, privacy=privacy)
    deploy(those, tmp_path, Secured(), list[str]().append)
    lines = (tmp_path / "server" / "metrics.jsonl").read_text().splitlines()
    first, last = (json.loads(line) for line in lines)
    assert first["train_loss"] is last["train_loss"] is None
    assert 0 < first["privacy_epsilon"] < last["privacy_epsilon"] <= 8.0
    assert max(last["client_epsilon"]) == last["privacy_epsilon"] >= 0.99 * 8.0
    states = [tmp_path / f"node{client}" / "states" for client in range(2)]
    assert [len(one) for folder in states for one in read_account(folder / ACCOUNT).values()] == [2, 2]
    assert [(folder / SECRET).stat().st_mode & 0o777 for folder in states] == [0o600] * 2
    secrets = {(folder / SECRET).read_bytes(): folder / SECRET for folder in states}
    assert len(secrets) == 2
    written = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for secret, own in secrets.items():
        assert [file for file, content in written.items() if secret in content] == [own]
