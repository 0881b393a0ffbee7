"""Devices: as many as end a round first, chosen once, kept by the run, and had again on reopening; and its threads."""

import dataclasses
import io
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as RichConsole

from fdgjax.config.command_line import parse
from fdgjax.engine.devices import MOST_DEVICES, SHARING, fastest_devices, round_time, suitable_devices
from fdgjax.experiments import build
from fdgjax.run.console import Console
from fdgjax.run.device_choice import as_begun, unlike_begun
from fdgjax.run.records.workdir import open_workdir
from fdgjax.run.reopen import reopen
from fdgjax.run.runner import run_config
from fdgjax.utils.checksums import read_checked_json
from fdgjax.utils.threads import VARIABLES, cores
from tests.runs import never, perceptron, small

__all__ = ["perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron")


def by_hand(clients: int, devices: int, processors: int) -> float:
    """The time of a round, by letting it pass: devices with clients left share the processors until one has none."""
    turns = math.ceil(clients / devices)
    left = [float(min(turns, clients - done)) for done in range(0, clients, turns)]
    busy, passed = len(left), 0.0
    while left:
        speed, step = min(1.0, processors / len(left)), min(left)
        passed += step / speed
        left = [one - step for one in left if one > step]
    return passed * processors * (SHARING if busy > processors else 1.0)


@given(clients=st.integers(1, 40), devices=st.integers(1, 12), processors=st.integers(1, 12))
def test_a_round_takes_what_its_slowest_device_takes(clients: int, devices: int, processors: int) -> None:
    np.testing.assert_allclose(
        round_time(clients, devices, processors), by_hand(clients, devices, processors), rtol=1e-12
    )


@given(clients=st.integers(1, 100), processors=st.integers(1, 16), most=st.integers(1, 12))
def test_the_fastest_number_is_the_smallest_of_the_fastest(clients: int, processors: int, most: int) -> None:
    chosen = fastest_devices(clients, processors, most)
    assert 1 <= chosen <= min(clients, most)
    time = round_time(clients, chosen, processors)
    others = range(1, min(clients, most) + 1)
    assert all(round_time(clients, n, processors) > time for n in others if n < chosen)
    assert all(round_time(clients, n, processors) >= time for n in others)


@given(clients=st.integers(1, 100), processors=st.integers(1, 16))
def test_within_the_processors_it_is_the_fewest_turns(clients: int, processors: int) -> None:
    chosen = fastest_devices(clients, processors, processors)
    assert math.ceil(clients / chosen) == math.ceil(clients / processors)


@pytest.mark.parametrize(
    ("clients", "processors", "devices"), [(1, 2, 1), (2, 2, 2), (3, 2, 3), (4, 2, 2), (5, 2, 3), (8, 2, 2), (10, 8, 5)]
)
def test_cores_are_shared_only_where_one_would_be_idle_for_long(clients: int, processors: int, devices: int) -> None:
    assert fastest_devices(clients, processors, MOST_DEVICES) == devices


def test_copies_of_the_data_take_a_quarter_of_the_free_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    several = len(jax.devices())
    assert several > 1
    monkeypatch.setattr("fdgjax.engine.devices.cores", lambda: several)
    assert suitable_devices(several, 100, 400 * several) == several
    assert suitable_devices(several, 100, 400 * several - 1) < several
    assert suitable_devices(several, 100, 0) == 1


@pytest.mark.parametrize(
    ("method", "changes", "clients"), [("fedavg", {}, 5), ("central", {}, 1), ("fedavg", {"clients_per_round": 2}, 2)]
)
def test_an_experiment_takes_the_number_that_suits_its_clients(
    method: str, changes: dict[str, int], clients: int, cache: Path
) -> None:
    experiment = build(small(cache, method, devices=0, **changes))
    assert experiment.config.devices == experiment.execution.devices == suitable_devices(clients, 0, None)
    assert build(small(cache, method, devices=1, **changes)).config.devices == 1


def test_a_run_keeps_the_number_it_began_with(cache: Path, tmp_path: Path) -> None:
    begun = small(cache, rounds=1, devices=3)
    run_config(begun, tmp_path, Console(), never())
    unsaid = dataclasses.replace(begun, devices=0)
    assert as_begun(unsaid, tmp_path) == begun
    assert as_begun(unsaid, tmp_path / "other") == unsaid
    screen = io.StringIO()
    run_config(dataclasses.replace(unsaid, rounds=2), tmp_path, Console(RichConsole(file=screen, width=300)), never())
    assert "a run of 1 rounds, continued to 2" in screen.getvalue()
    assert read_checked_json(tmp_path / "config.json")["config"]["devices"] == 3
    assert reopen(tmp_path).experiment.execution.devices == 3


@pytest.mark.slow
def test_a_run_is_reopened_on_one_device_where_there_are_not_so_many(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_config(small(cache, rounds=1, devices=2), tmp_path, Console(), never())
    one = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: one)
    assert reopen(tmp_path).experiment.execution.devices == 1


def test_a_machine_with_fewer_cores_is_told_once_in_one_line(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(cache, rounds=1)
    monkeypatch.setattr("fdgjax.run.records.workdir.threads", lambda: 3)
    open_workdir(tmp_path, config)
    cases = {
        (2, 3): "began with 3 threads and this machine has 2 cores",
        (3, 3): "",
        (8, 3): "",
        (8, 8): "began with 3 threads and this process has 8",
    }
    for (here, shared), said in cases.items():
        monkeypatch.setattr("fdgjax.run.device_choice.cores", lambda here=here: here)
        monkeypatch.setattr("fdgjax.run.device_choice.threads", lambda shared=shared: shared)
        line = unlike_begun(config, tmp_path)
        assert bool(line) == bool(said)
        assert said in line
        assert "\n" not in line
    assert unlike_begun(config, tmp_path / "new") == ""


@pytest.mark.slow
def test_a_process_has_the_devices_that_it_needs_whatever_starts_jax(tmp_path: Path) -> None:
    """PartialFed computes something while it is made, a network with frozen stages too."""
    program = (
        "import sys; from fdgjax.experiments import build; from fdgjax.config.command_line import parse; "
        "print(build(parse(sys.argv)[0]).config.devices)"
    )
    words = ["--config=partialfed", "--config.clients_per_round=3", f"--config.data.cache_dir={tmp_path}"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) == fastest_devices(3, cores(), MOST_DEVICES)


@pytest.mark.slow
def test_a_run_goes_on_with_the_threads_it_began_with(tmp_path: Path) -> None:
    """In processes of their own: JAX reads the number as it starts."""
    words = [f"--workdir={tmp_path / 'run'}", f"--config.data.cache_dir={tmp_path}", "--config.local_epochs=1"]
    program = "import sys; from fdgjax.cli.train import main; from fdgjax.utils.threads import threads; main(sys.argv)"
    begin = [sys.executable, "-c", f"{program}; print(threads())", "--config=fedavg", "--config.writers=", *words]
    without = {name: value for name, value in os.environ.items() if name not in VARIABLES}

    def after(rounds: int, environment: Mapping[str, str]) -> str:
        command = [*begin, f"--config.rounds={rounds}"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()[-1]

    assert after(1, without | {VARIABLES[0]: "3"}) == "3"
    assert read_checked_json(tmp_path / "run" / "config.json")["threads"] == 3
    assert after(2, without) == "3"


def test_threads_are_settled_before_jax_starts_and_never_after() -> None:
    program = (
        "import jax; from fdgjax.utils.threads import settle_threads, threads; settle_threads(3); jax.devices(); "
        "settle_threads(5); print(threads())"
    )
    without = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run([sys.executable, "-c", program], env=without, capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"


def test_the_word_auto_is_the_default() -> None:
    config, workdir = parse(["fdgjax", "--config=fedavg", "--config.devices=auto"])
    assert config.devices == 0
    assert workdir == parse(["fdgjax", "--config=fedavg"])[1]
    assert parse(["fdgjax", "--config=fedavg", "--config.devices=2"])[0].devices == 2
