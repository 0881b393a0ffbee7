"""Curves kept with the project draw the report's figures, and say nothing of the machine they come from."""

import shutil
from pathlib import Path

import pytest

from fdgjax.report.reading import read_runs
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from launch.evidence import main, shortened
from tests.report.folders import write_run


def kept(tmp_path: Path, done: int) -> Path:
    run = write_run(tmp_path / "run", seeds=(3,), done=done)
    content = read_checked_json(run / "config.json")
    content["config"]["data"]["dir"] = "/home/somebody/data"
    content["versions"] = {"jax": "1.2.3", "platform": "of somebody"}
    write_checked_json(run / "config.json", content)
    assert main(["evidence", str(run), "--out", str(tmp_path / "kept"), "--commit", "abc1234"]) == 0
    return tmp_path / "kept"


@pytest.mark.parametrize("done", [4, 6])
def test_a_report_reads_the_same_figures_from_what_is_kept(tmp_path: Path, done: int) -> None:
    (kept_run,), (run,) = read_runs([kept(tmp_path, done)]), read_runs([tmp_path / "run"])
    figures, wanted = (one.folders[0].seeds[0].figures for one in (kept_run, run))
    assert set(figures) == set(wanted) - {"calibration"}
    assert figures["id_accuracy"] == pytest.approx(wanted["id_accuracy"], rel=1e-4)
    assert len(kept_run.folders[0].seeds[0].records) == done
    assert bool(kept_run.folders[0].seeds[0].summary) == (done == 6)


def test_neither_the_machine_nor_its_folders_are_kept(tmp_path: Path) -> None:
    folder = kept(tmp_path, 6)
    text = "".join(file.read_text() for file in folder.rglob("*.json*"))
    assert "somebody" not in text
    assert read_checked_json(folder / "run" / "config.json")["commit"] == "abc1234"


def test_the_commit_is_the_recorded_one_where_a_run_has_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", seeds=(3,))
    keep = ["evidence", str(run), "--out", str(tmp_path / "kept")]
    assert main(keep) == 0
    assert capsys.readouterr().out == "run: 6 of 6 rounds, commit unknown\n"
    shutil.rmtree(tmp_path / "kept")
    write_checked_json(run / "config.json", read_checked_json(run / "config.json") | {"commit": "abc1234567-dirty"})
    assert main([*keep, "--commit", "def1234"]) == 2
    assert "--commit got 'def1234'" in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()
    for more in ([], ["--commit", "abc1234"]):
        assert main([*keep, *more]) == 0
        (folder,) = read_runs([tmp_path / "kept"])[0].folders
        assert folder.commit == "abc1234567-dirty"


def test_a_commit_with_more_digits_than_are_recorded_is_the_same(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seeds=(3,))
    write_checked_json(run / "config.json", read_checked_json(run / "config.json") | {"commit": "abc1234567"})
    keep = ["evidence", str(run), "--out", str(tmp_path / "kept"), "--commit"]
    assert main([*keep, "abc1234567890"]) == 0
    (folder,) = read_runs([tmp_path / "kept"])[0].folders
    assert folder.commit == "abc1234567"


def test_numbers_have_five_digits_and_whole_ones_stay_whole() -> None:
    assert shortened({"a": [0.123456789, 3], "b": "x", "c": None}) == {"a": [0.12346, 3], "b": "x", "c": None}


def test_a_run_that_goes_on_has_no_summary_until_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(tmp_path, 6)
    assert capsys.readouterr().out == "run: 6 of 6 rounds, commit abc1234\n"
    (tmp_path / "run").rename(tmp_path / "before")
    assert not list(kept(tmp_path, 4).rglob("summary.json"))
    assert capsys.readouterr().out == "run: 4 of 6 rounds, no summary, commit abc1234\n"
    assert len(read_runs([folder])[0].folders[0].seeds[0].records) == 4


def test_no_run_takes_the_place_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (str(write_run(tmp_path / place / "run", seeds=(seed,))) for place, seed in (("a", 3), ("b", 4)))
    more = ["--out", str(tmp_path / "kept"), "--commit", "abc1234"]
    for runs, words in (([one, other], "2 folders called 'run'"), ([other], "keeps another experiment")):
        assert main(["evidence", *runs, *more]) == 2
        assert words in capsys.readouterr().err
        assert main(["evidence", one, *more]) == 0


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evidence", str(tmp_path), "--out", str(tmp_path / "kept"), "--commit", "abc1234"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected the folder of one seed's run" in line
