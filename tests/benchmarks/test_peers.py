"""Who takes part in `benchmarks.peers`, and its table; no other framework is needed."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import timing
from benchmarks.child import KINDS, read_job
from benchmarks.jobs import Job
from benchmarks.peers import contenders
from benchmarks.peers.__main__ import main, table
from benchmarks.peers.contenders import PEERS, Peer, interpreter, jobs_of
from fdgjax.utils.errors import UserError

BASE = Job("engine", clients=2, batch_size=4, steps=5)


@pytest.fixture
def some(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = {
        "here": Peer({"kind": "flax"}, "json"),
        "nowhere": Peer({"kind": "torch"}, "no_such_module", does="nothing"),
        "elsewhere": Peer({"kind": "flgo"}, "no_such_module", "elsewhere"),
    }
    monkeypatch.setattr(contenders, "PEERS", peers)


@pytest.mark.usefixtures("some")
def test_what_is_not_installed_is_one_line_and_no_job(tmp_path: Path) -> None:
    jobs, absent = jobs_of(["nowhere", "here", "elsewhere"], BASE, tmp_path)
    assert jobs == {"here": BASE._replace(kind="flax", python=sys.executable)}
    assert [line.partition(";")[0] for line in absent] == ["nowhere: not installed", "elsewhere: not installed"]
    assert "benchmarks/peers/elsewhere.txt" in absent[1]
    with pytest.raises(UserError, match="contender"):
        jobs_of(["somewhere"], BASE, tmp_path)


@pytest.mark.usefixtures("some")
def test_a_run_without_anything_installed_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--contenders", "nowhere", "--environments", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_environment_of_its_own_is_used_where_there_is_one(tmp_path: Path) -> None:
    peer = Peer({}, "no_such_module", "mine")
    assert interpreter(peer, tmp_path) == sys.executable
    python = tmp_path / "mine" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert interpreter(peer, tmp_path) == str(python)
    # An environment for others is not used by what needs none.
    assert interpreter(peer._replace(environment=""), tmp_path) == sys.executable


def test_every_contender_has_a_measurement_and_every_environment_its_requirements() -> None:
    for peer in PEERS.values():
        assert Job(**{"kind": "engine", **peer.job}).kind in KINDS
        if peer.environment:
            listed = (Path(contenders.__file__).parent / f"{peer.environment}.txt").read_text()
            assert peer.module in listed


def test_rows_are_medians_and_ratios_within_a_repeat() -> None:
    def measured(name: str, repeat: int, speed: float) -> dict:
        job = BASE._replace(**PEERS[name].job)._asdict()
        return {"contender": name, "repeat": repeat, "job": job, "images_per_second": speed, "framework": "It 1.0"}

    slow_then_fast = [("map", 0, 20.0), ("torch", 0, 10.0), ("map", 1, 400.0), ("torch", 1, 100.0)]
    failed = {"contender": "flgo", "repeat": 0, "job": BASE._asdict(), "failed": "no"}
    header, _, *rows = table([*(measured(*m) for m in slow_then_fast), failed], list(PEERS)).splitlines()
    assert header.split("|")[3].strip() == "images/s"
    cells = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]] for row in rows}
    assert list(cells) == ["map", "torch", "flgo"]
    # 2 x 4 x 5 images a round, at 20 and 400 a second.
    assert cells["map"] == ["It 1.0, ours, one compiled program", "210.0", "3.00x", "1.05", "-", "-"]
    assert cells["flgo"][1:] == ["-"] * 5


def test_one_round_is_not_timed_and_processes_below_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: Iterator[float] = iter([1.0, 3.0, 3.0, 7.0])
    monkeypatch.setattr(timing, "CLOCKS", {"cpu": lambda: next(ticks)})
    assert timing.timed(lambda state: state + 1, 0, 2, "cpu")[:2] == (3, [2.0, 4.0])


def test_processor_time_is_that_of_the_processes_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = "0 " * 9
    for number, parent, ticks in [(10, 1, 1000), (11, 10, 1), (12, 11, 20), (13, 1, 300)]:
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stat").write_text(f"{number} (a) b) S {parent} {rest}{ticks} 0 {ticks} 0")
    monkeypatch.setattr(timing, "PROCESSES", tmp_path)
    assert [int(stat[11]) for stat in timing._descendants(10)] == [1, 20]


def test_a_job_that_was_written_is_the_same_and_a_key() -> None:
    job = BASE._replace(sizes=(3, 5))
    assert {read_job(json.dumps(job._asdict()))} == {job}
