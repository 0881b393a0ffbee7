"""Devices: as many as end a round first, chosen once, kept by the run, and had again on reopening; and its threads."""

import dataclasses
import io
import itertools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as RichConsole

from fdgjax.config.command_line import parse
from fdgjax.data.federation import Partition
from fdgjax.engine.core_speeds import CoreSpeeds, core_speeds, measured, usual_speeds
from fdgjax.engine.devices import (
    MOST_DEVICES,
    assigned_slots,
    clients_per_device,
    drawn_rounds,
    fastest_devices,
    fastest_on_cpu,
    loads,
    longest_first,
    round_time,
    suitable_devices,
)
from fdgjax.experiments import build
from fdgjax.experiments.components import slots_of
from fdgjax.methods import METHODS
from fdgjax.run.console import Console
from fdgjax.run.device_choice import as_begun, unlike_begun
from fdgjax.run.records.workdir import open_workdir
from fdgjax.run.reopen import reopen
from fdgjax.run.runner import run_config
from fdgjax.utils.checksums import read_checked_json
from fdgjax.utils.processor import cores
from fdgjax.utils.threads import VARIABLES
from tests.runs import never, perceptron, small

__all__ = ["perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron")


SPEEDS = CoreSpeeds(alone=1.4, sharing=1.15)
WORK = st.lists(st.integers(1, 30), min_size=1, max_size=7).map(np.array)


def by_hand(work: np.ndarray, processors: int, speeds: CoreSpeeds) -> float:
    """The time of a round on two processors at most, by letting it pass in small turns."""
    left, passed = work.astype(float), 0.0
    while busy := int(np.count_nonzero(left)):
        if processors == 1 or busy > processors:
            speed = processors / busy / (speeds.sharing if busy > processors else 1)
        else:
            speed = speeds.alone if len(work) == 1 else 1.0
        turn = left[left > 0].min() / speed
        passed += turn
        left = np.where(left > 0, np.maximum(left - turn * speed, 0), 0)
        left[left < 1e-9] = 0
    return passed


@given(work=st.lists(st.integers(0, 30), min_size=1, max_size=5).map(np.array), processors=st.integers(1, 2))
def test_a_round_takes_what_its_slowest_device_takes(work: np.ndarray, processors: int) -> None:
    np.testing.assert_allclose(
        round_time(work, processors, SPEEDS), by_hand(work, processors, SPEEDS), rtol=1e-9, atol=1e-9
    )


@given(steps=WORK, devices=st.integers(1, 3))
def test_the_longest_first_end_within_four_thirds_of_the_best_assignment(steps: np.ndarray, devices: int) -> None:
    own = longest_first(steps, devices)
    assert own.shape == steps.shape
    ends = np.bincount(own, weights=steps, minlength=devices).max()
    choices = itertools.product(range(devices), repeat=len(steps))
    best = min(np.bincount(choice, weights=steps, minlength=devices).max() for choice in choices)
    assert best <= ends <= (4 / 3 - 1 / (3 * devices)) * best


@pytest.mark.slow
def test_the_program_assigns_every_client_once_as_the_choice_of_devices_expects() -> None:
    assign = jax.jit(assigned_slots, static_argnums=(1, 2))
    rng = np.random.default_rng(0)
    for devices in (1, 2, 3):
        for _ in range(5):
            steps = rng.integers(0, 9, 6)
            own = longest_first(steps, devices)
            slots = int(np.bincount(own).max())
            places = np.asarray(assign(jnp.asarray(steps), devices, 6))
            np.testing.assert_array_equal(places // 6, own)
            tight = np.asarray(assign(jnp.asarray(steps), devices, slots))
            np.testing.assert_array_equal(tight // slots, own)
            assert len(set(tight)) == 6
            # Where participants draw a worse round than was expected, no device gets more than it has room for.
            least = np.asarray(assign(jnp.asarray(steps), devices, -(-6 // devices)))
            assert len(set(least)) == 6
            assert least.max() < devices * -(-6 // devices)


@given(clients=st.integers(1, 30), devices=st.integers(1, 8))
def test_equal_clients_stay_in_their_order_equally_many_on_each_device(clients: int, devices: int) -> None:
    steps = np.full(clients, 5)
    assert clients_per_device([steps], devices) == 0
    np.testing.assert_array_equal(
        loads(steps, devices, 0)[: clients // -(-clients // devices)], 5 * -(-clients // devices)
    )


@given(rounds=st.lists(WORK, min_size=1, max_size=3), processors=st.integers(1, 16), most=st.integers(1, 8))
def test_the_fastest_number_is_the_smallest_of_the_fastest_and_more_than_cores_gain_a_twentieth(
    rounds: list[np.ndarray], processors: int, most: int
) -> None:
    def time(devices: int) -> float:
        slots = clients_per_device(rounds, devices)
        return sum(round_time(loads(steps, devices, slots), processors, SPEEDS) for steps in rounds)

    largest = max(1, min(most, *map(len, rounds)))
    chosen = fastest_devices(rounds, processors, most, SPEEDS)
    assert 1 <= chosen <= largest
    own, shared = range(1, min(processors, largest) + 1), range(processors + 1, largest + 1)
    rivals = shared if chosen in shared else own
    assert all(time(n) > time(chosen) - 1e-6 for n in rivals)
    assert all(time(n) > time(chosen) for n in rivals if n < chosen)
    if chosen in shared:
        assert 1.05 * time(chosen) < min(map(time, own)) + 1e-6
    else:
        assert all(1.05 * time(n) > time(chosen) - 1e-6 for n in shared)


@pytest.mark.parametrize(
    ("steps", "processors", "devices"),
    [
        *(([9] * clients, 2, devices) for clients, devices in [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3), (8, 2)]),
        ([9] * 10, 8, 5),
        ([26, 30, 50], 2, 2),  # the longest alone is as long as the other two together
        ([3, 3, 3, 3, 3, 4], 2, 2),  # one of two devices is idle for a twentieth of the round, with four none would be
        ([5, 1, 1], 2, 1),  # all cores for the longest are worth more than a core for the others
    ],
)
def test_cores_are_shared_only_where_one_would_be_idle_for_long(
    steps: list[int], processors: int, devices: int
) -> None:
    assert fastest_devices([np.array(steps)], processors, MOST_DEVICES, SPEEDS) == devices


def test_the_draws_of_participants_are_those_of_all_clients_in_their_order() -> None:
    steps = [np.arange(10), np.arange(10, 20)]
    assert drawn_rounds(steps, 10) == steps
    drawn = drawn_rounds(steps, 3)
    assert {len(one) for one in drawn} == {3}
    assert all(np.all(np.diff(one) > 0) for one in drawn)
    assert set(np.concatenate(drawn)) == set(range(20))


def test_the_assignment_depends_on_the_split_and_the_recorded_number_alone(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run has the number of devices that its folder records, and so the same assignment."""
    parts = [Partition([np.arange(n) for n in sizes], [], [], np.arange(1), np.arange(0)) for sizes in UNEQUAL]
    monkeypatch.setattr("fdgjax.engine.devices.core_speeds", lambda: pytest.fail("nothing is measured"))
    slots = {
        (method, axis, devices): slots_of(
            small(cache, method, devices=devices, client_axis=axis, batch_size=1), METHODS[method], parts
        )
        for method in ("fedavg", "central")
        for axis in ("map", "vmap")
        for devices in (1, 2)
    }
    assert slots.pop(("fedavg", "map", 2)) == 3
    assert set(slots.values()) == {0}


UNEQUAL = ((3, 9, 3, 4), (3, 3, 9, 2))
"""The clients' samples by seed: two in their order are longer than the longest and three by their work."""


def test_the_speeds_of_the_cores_are_measured_once_and_only_on_a_quiet_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("fdgjax.engine.core_speeds.cores", lambda: 2)
    answers = iter([[], [3.0, 4.0, 3.2]])
    monkeypatch.setattr("fdgjax.engine.core_speeds.measured", lambda processors: next(answers))
    assert core_speeds() == usual_speeds(2)
    assert core_speeds() == core_speeds() == CoreSpeeds(alone=1.5, sharing=1.25)
    (tmp_path / "fdgjax" / "cores.json").write_text("damaged")
    answers = iter([[9.0, 4.0, 5.0]])
    assert core_speeds() == CoreSpeeds(alone=2.0, sharing=1.0)


@pytest.mark.parametrize(("steps", "devices"), [([9], 1), ([9] * 3, 3), ([9] * 4, 2), ([9] * 5, 3), ([26, 30, 50], 2)])
def test_nothing_is_measured_where_the_usual_speeds_decide(
    steps: list[int], devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdgjax.engine.devices.cores", lambda: 2)
    monkeypatch.setattr("fdgjax.engine.devices.core_speeds", lambda: pytest.fail("nothing is measured"))
    assert fastest_on_cpu([np.array(steps)], MOST_DEVICES) == devices


def test_devices_share_cores_only_where_a_step_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgjax.engine.devices.cores", lambda: 2)
    monkeypatch.setattr("fdgjax.engine.devices.core_speeds", lambda: CoreSpeeds(alone=1.4, sharing=1.0))
    five = [np.full(5, 9)]
    short, long = (fastest_on_cpu(five, MOST_DEVICES, step_flops) for step_flops in (1e8, 1e10))
    assert (short, long) == (2, 3)
    # A core of its own costs no turns: where none is shared, the length of a step is nothing to the choice.
    assert fastest_on_cpu([np.full(4, 9)], MOST_DEVICES, 1.0) == fastest_on_cpu([np.full(4, 9)], MOST_DEVICES) == 2


@pytest.mark.slow
def test_the_probe_prints_three_rates_or_none() -> None:
    assert len(measured(1)) in (0, 3)


def test_copies_of_the_data_take_a_quarter_of_the_free_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    several = len(jax.devices())
    assert several > 1
    monkeypatch.setattr("fdgjax.engine.devices.cores", lambda: several)
    monkeypatch.setattr("fdgjax.engine.devices.core_speeds", lambda: CoreSpeeds(alone=1.0, sharing=1.0))
    equal = [np.ones(several, int)]
    assert suitable_devices(equal, 100, 400 * several) == several
    assert suitable_devices(equal, 100, 400 * several - 1) < several
    assert suitable_devices(equal, 100, 0) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "changes", "clients"), [("fedavg", {}, 5), ("central", {}, 1), ("fedavg", {"clients_per_round": 2}, 2)]
)
def test_an_experiment_takes_the_number_that_suits_its_clients(
    method: str, changes: dict[str, Any], clients: int, cache: Path
) -> None:
    experiment = build(small(cache, method, devices=0, **changes))
    equal = [np.ones(clients, int)]
    chosen = suitable_devices(equal, 0, None, 6.0 * experiment.config.batch_size * experiment.cost.flops)
    assert experiment.config.devices == experiment.execution.devices == chosen
    assert build(small(cache, method, devices=1, **changes)).config.devices == 1


@pytest.mark.slow
def test_images_that_stay_on_disk_take_no_devices_memory(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgjax.engine.devices.cores", lambda: 2)
    held = small(cache, "fedavg", devices=0)
    streamed = dataclasses.replace(held, data=dataclasses.replace(held.data, streaming=True))
    free = build(streamed).data.inputs.nbytes
    monkeypatch.setattr("fdgjax.experiments.components.available_bytes", lambda: free)
    assert build(held).config.devices == 1
    assert build(streamed).config.devices > 1


@pytest.mark.slow
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
    """PartialFed computes something while it is made, a network with frozen stages too. Two clients have a device each
    on any machine with two cores, however fast it measures them."""
    program = (
        "import sys; from fdgjax.experiments import build; from fdgjax.config.command_line import parse; "
        "print(build(parse(sys.argv)[0]).config.devices)"
    )
    words = ["--config=partialfed", "--config.clients_per_round=2", f"--config.data.cache_dir={tmp_path}"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) == min(2, cores())


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


@pytest.mark.slow
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
