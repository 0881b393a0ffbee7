"""The tables that are computed from the kept runs are those in the documentation, and rest on the right counts."""

import numpy as np
import pytest

from fdgjax.methods import METHODS
from fdgjax.sweeps.cells import SPECS, read_published, read_spec
from launch.headlines import headlines
from launch.kept import EVIDENCE, common_denominator, compared_in, images_of, kept_cells
from launch.pages import ROOT
from launch.results import main
from launch.rows import RESULTS

OFFICIAL = "fdse_office_caltech10_official"


@pytest.mark.slow
def test_the_pages_have_the_tables_that_the_kept_runs_give() -> None:
    assert main(["results", "--check"]) == 0


@pytest.mark.slow
def test_another_table_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("launch.published_cells.EVIDENCE", EVIDENCE[:1])
    before = (ROOT / "docs" / "results.md").read_text()
    assert main(["results", "--check"]) == 2
    assert "run python -m launch.results" in capsys.readouterr().err
    assert (ROOT / "docs" / "results.md").read_text() == before


@pytest.mark.slow
def test_test_images_are_those_of_the_data() -> None:
    """A tenth of PACS's domains (2,048, 2,344, 1,670 and 3,929 images), and all of the unseen one."""
    for cell in kept_cells("hfedf_pacs"):
        unseen = {"sketch": 3929, "photo": 1670}[cell.name.partition("-")[2]]
        held_out = {"sketch": (205, 234, 167), "photo": (205, 234, 393)}[cell.name.partition("-")[2]]
        assert images_of(cell.seeds[0], "ood_accuracy") == unseen
        wanted = 9 / sum(1 / size for size in held_out)
        assert images_of(cell.seeds[0], "id_accuracy") == pytest.approx(wanted)
    for cell in kept_cells("fdse_office_caltech10"):
        assert images_of(cell.seeds[0], "all_accuracy") == 95 + 112 + 15 + 29


@pytest.mark.parametrize("number", [7, 250, 3929])
def test_a_denominator_is_found_from_rounded_fractions(number: int) -> None:
    drawn = np.random.default_rng(0).integers(1, number, 40) / number
    assert common_denominator([float(f"{one:.5g}") for one in drawn]) == number


@pytest.mark.slow
def test_every_kept_cell_of_a_paper_is_compared() -> None:
    """All are cells of the paper's spec; one for which the paper prints nothing but its mean has no comparison."""
    for evidence in EVIDENCE:
        names = {cell.name for cell in kept_cells(evidence.folder)}
        spec = SPECS / f"{evidence.spec}.py"
        assert names <= {cell.name for cell in read_spec(spec, "paper")}
        published = {name for name, _ in read_published(spec)}
        assert names & published == {cell.name for cell, _ in compared_in(evidence)}
        assert names & published


def test_no_method_with_results_is_said_to_have_none() -> None:
    said = (ROOT / "docs" / "choosing.md").read_text().partition("<!-- not measured")[2].partition("<!-- end of")[0]
    unmeasured = {name for name in METHODS if f"`{name}`" in said}
    pages = "".join(page.read_text() for page in RESULTS.glob("*/README.md"))
    assert unmeasured
    assert not [name for name in unmeasured if f"| {name} |" in pages]
    assert "| fedomg |" in pages


def test_the_readmes_figures_are_means_of_the_published_cells() -> None:
    """hFedF's line: ours the mean over four targets of what the table of cells has, the paper's the mean it prints."""
    (line,) = (line for line in headlines("").splitlines() if "augmented" in line and "without" not in line)
    (evidence,) = (one for one in EVIDENCE if one.folder == "hfedf_pacs_augmented")
    rows, printed = [row for _, row in compared_in(evidence)], read_published(SPECS / f"{evidence.spec}.py")
    for method in ("fedavg", "hfedf"):
        shown = []
        for figure in ("id_accuracy", "ood_accuracy"):
            ours = [row.ours or 0 for row in rows if row.figure == figure and row.name.startswith(f"{method}-")]
            assert len(ours) == 4
            shown += [f"{np.mean(ours):.1f}", f"{printed[method, figure].mean:.1f}"]
        assert "{} / {} ({} / {})".format(*shown[::2], *shown[1::2]) in line


def test_the_readmes_line_is_of_the_seeds_that_both_methods_have() -> None:
    (line,) = (line for line in headlines("").splitlines() if "official" in line)
    cells = {
        cell.name: {seed.seed: seed.figures["avg_accuracy"] for seed in cell.seeds} for cell in kept_cells(OFFICIAL)
    }
    both = cells["fedavg"].keys() & cells["fdse"].keys()
    assert f"{len(both)} seed" in line
    for name in ("fedavg", "fdse"):
        assert f"{100 * np.mean([cells[name][seed] or 0 for seed in both]):.1f} / " in line
