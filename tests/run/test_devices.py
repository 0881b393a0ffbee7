"""The number of devices: the fewest that save turns, chosen once and kept by the run, and had again on reopening."""

import dataclasses
import io
from pathlib import Path

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as RichConsole

from fdgjax.building import build
from fdgjax.config.command_line import parse
from fdgjax.engine.clients import MOST_DEVICES, fitting_devices
from fdgjax.files import read_sealed
from fdgjax.run.console import Console
from fdgjax.run.devices import as_begun, more_than_cores
from fdgjax.run.recorded import run
from fdgjax.run.reopen import reopen
from tests.runs import never, perceptron, small

__all__ = ["perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron")


def turns(clients: int, devices: int) -> int:
    return -(-clients // devices)


@given(clients=st.integers(1, 100))
def test_it_is_the_fewest_on_which_clients_take_as_few_turns_as_on_all(clients: int) -> None:
    everything, chosen = min(len(jax.devices()), MOST_DEVICES), fitting_devices(clients, 0, None)
    assert 1 <= chosen <= min(everything, clients)
    assert turns(clients, chosen) == turns(clients, everything)
    assert chosen == 1 or turns(clients, chosen - 1) > turns(clients, everything)


def test_copies_of_the_data_take_a_quarter_of_the_free_memory_at_most() -> None:
    several = len(jax.devices())
    assert several > 1
    assert fitting_devices(several, 100, 400 * several) == several
    assert fitting_devices(several, 100, 400 * several - 1) < several
    assert fitting_devices(several, 100, 0) == 1


@pytest.mark.parametrize(
    ("method", "changes", "clients"), [("fedavg", {}, 5), ("central", {}, 1), ("fedavg", {"clients_per_round": 2}, 2)]
)
def test_an_experiment_takes_the_number_that_suits_its_clients(
    method: str, changes: dict[str, int], clients: int, cache: Path
) -> None:
    experiment = build(small(cache, method, devices=0, **changes))
    assert experiment.config.devices == experiment.execution.devices == fitting_devices(clients, 0, None)
    assert build(small(cache, method, devices=1, **changes)).config.devices == 1


def test_a_run_keeps_the_number_it_began_with(cache: Path, tmp_path: Path) -> None:
    begun = small(cache, rounds=1, devices=3)
    run(begun, tmp_path, Console(), never())
    unsaid = dataclasses.replace(begun, devices=0)
    assert as_begun(unsaid, tmp_path) == begun
    assert as_begun(unsaid, tmp_path / "other") == unsaid
    screen = io.StringIO()
    run(dataclasses.replace(unsaid, rounds=2), tmp_path, Console(RichConsole(file=screen, width=300)), never())
    assert "a run of 1 rounds, continued to 2" in screen.getvalue()
    assert read_sealed(tmp_path / "config.json")["config"]["devices"] == 3
    assert reopen(tmp_path).experiment.execution.devices == 3


@pytest.mark.slow
def test_a_run_is_reopened_on_one_device_where_there_are_not_so_many(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(small(cache, rounds=1, devices=2), tmp_path, Console(), never())
    one = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: one)
    assert reopen(tmp_path).experiment.execution.devices == 1


def test_a_machine_with_fewer_cores_is_told_once_in_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(cache, devices=3)
    for here, said in ((2, True), (3, False), (8, False)):
        monkeypatch.setattr("fdgjax.run.devices.cores", lambda here=here: here)
        line = more_than_cores(config)
        assert bool(line) == said
        assert not said or ("config.devices is 3 and this machine has 2 cores" in line and "\n" not in line)


def test_the_word_auto_is_the_default() -> None:
    config, workdir = parse(["fdgjax", "--config=fedavg", "--config.devices=auto"])
    assert config.devices == 0
    assert workdir == parse(["fdgjax", "--config=fedavg"])[1]
    assert parse(["fdgjax", "--config=fedavg", "--config.devices=2"])[0].devices == 2
