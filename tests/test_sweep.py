"""A sweep runs every cell once, goes on where it was stopped, and says what failed."""

import re
import threading
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from fdgjax.config import to_plain
from fdgjax.console import Console
from fdgjax.errors import UserError
from fdgjax.run import Interrupted
from launch.specs.uap_rotated_mnist import PUBLISHED
from launch.sweep import Cell, main, read_spec, run_cells
from tests.runs import StopAfter, perceptron, small

__all__ = ["perceptron"]

SPEC = Path(__file__).parents[1] / "launch/specs/uap_rotated_mnist.py"
pytestmark = pytest.mark.usefixtures("perceptron")


def cell(cache: Path, name: str, **changes: object) -> Cell:
    return Cell(name, ConfigDict(to_plain(small(cache, **changes))), published=0.5)


def column(out: Path) -> dict[str, str]:
    return dict(re.findall(r"^\| (\w+) \| +(\S*) +\|", (out / "table.md").read_text(), re.MULTILINE))


def test_stopped_and_continued_leaves_the_undisturbed_table(tmp_path: Path) -> None:
    cells = [cell(tmp_path, "one"), cell(tmp_path, "two", seed=1)]
    assert run_cells(cells, tmp_path / "whole", Console(), threading.Event()) == []
    for looks in (2, 5):
        with pytest.raises(Interrupted):
            run_cells(cells, tmp_path / "cut", Console(), StopAfter(looks))
    assert run_cells(cells, tmp_path / "cut", Console(), threading.Event()) == []
    assert (tmp_path / "cut/table.md").read_text() == (tmp_path / "whole/table.md").read_text()
    before = (tmp_path / "cut/one/summary.json").stat().st_mtime_ns
    run_cells(cells, tmp_path / "cut", Console(), threading.Event())
    assert (tmp_path / "cut/one/summary.json").stat().st_mtime_ns == before, "a finished cell ran again"


def test_a_cell_that_fails_is_listed_and_the_others_run(tmp_path: Path) -> None:
    bad, good = cell(tmp_path, "bad"), cell(tmp_path, "good")
    bad.config.data.target = "atlantis"
    assert run_cells([bad, good], tmp_path / "out", Console(), threading.Event()) == ["bad"]
    table = (tmp_path / "out/table.md").read_text()
    assert "| bad | failed |" in table
    (ours, difference) = re.findall(r"\| good \| (\S+) \| 50.0 \| (\S+) \|", table)[0]
    assert float(ours) - 50 == pytest.approx(float(difference), abs=0.051)


def test_the_published_pairs_are_those_of_the_paper() -> None:
    cells = read_spec(SPEC)("")
    assert len(cells) == len({one.name for one in cells}) == 60
    pairs = {(one.config.data.server, one.config.data.target) for one in cells}
    assert len(pairs) == 30
    assert all(server != target for server, target in pairs)
    assert {one.config.method.name for one in cells} == {"ssfl", "uap"}
    assert sum(one.published for one in cells if one.config.method.name == "uap") * 100 == pytest.approx(
        sum(sum(rows[1]) for rows in PUBLISHED.values())
    )


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "nowhere.py", "--out", str(tmp_path)]) == 2
    assert main(["sweep", str(SPEC), "--out", str(tmp_path), "--only", "no-such-cell"]) == 2
    empty = tmp_path / "empty.py"
    empty.write_text("")
    with pytest.raises(UserError, match="no function cells"):
        read_spec(empty)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("fdgjax: SPEC") for line in lines)
