"""One command draws what is kept."""

from pathlib import Path

import pytest

from fdgjax.report.making import PAGE
from launch.curves import main
from tests.report.folders import write_run


@pytest.mark.slow
def test_every_folder_with_runs_has_a_report(tmp_path: Path) -> None:
    write_run(tmp_path / "kept/a/fedavg")
    write_run(tmp_path / "kept/b/hfedf", "hfedf")
    (tmp_path / "kept/c").mkdir()
    out = tmp_path / "out"
    assert main(["curves", "--kept", str(tmp_path / "kept"), "--out", str(out), "--figures", "svg"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["a", "b", "index.html"]
    page = (out / "index.html").read_text()
    for name in "ab":
        assert f'href="{name}/{PAGE}"' in page
        assert "Accuracy against rounds" in (out / name / PAGE).read_text()
        assert (out / name / "figures/rounds-id_accuracy-0.svg").is_file()
