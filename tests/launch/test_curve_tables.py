"""The tables of kept curves have what the runs' records have, and leads are differences of the same seeds."""

import json

import numpy as np
import pytest

from fdgjax.evaluation.statistics import paired
from fdgjax.sweeps.cells import Published
from launch.curve_tables import LEADING, curves_of, late_figure, lead, leading_first, leads, published_lead, values_of
from launch.kept import kept_cells
from launch.rows import RESULTS

FOLDER = "hfedf_pacs"


def rows_of(table: str) -> list[list[str]]:
    """The cells of a table's lines below its rule."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_a_curves_line_is_the_runs_records() -> None:
    table = next(part for part in curves_of(FOLDER, "").split("\n\n") if part.startswith("| ood |"))
    rounds = [int(title) for title in table.splitlines()[0].strip("| ").split(" | ")[2:]]
    lines = (RESULTS / FOLDER / "hfedf-photo" / "metrics.jsonl").read_text().splitlines()
    records = {record["round"]: record for record in map(json.loads, lines)}
    (line,) = (row for row in rows_of(table) if row[:2] == ["hfedf-photo", "0"])
    assert rounds[-1] == 200
    assert line[2:] == [f"{100 * records[at]['ood_accuracy']:.1f}" for at in rounds]


def test_every_finished_seed_has_a_line_in_each_table() -> None:
    cells = kept_cells(FOLDER)
    assert cells
    for table in curves_of(FOLDER, "").strip().split("\n\n"):
        assert {row[0] for row in rows_of(table)} == {cell.name for cell in cells}
        assert len(rows_of(table)) == sum(len(cell.seeds) for cell in cells)


def test_a_lead_is_the_mean_of_the_common_seeds_differences() -> None:
    found = values_of(kept_cells("hfedf_pacs_augmented"), "ood_accuracy")
    (name, own), *others = leading_first(found)
    assert name == LEADING
    assert others
    rows = rows_of(leads(""))
    for other, theirs in others:
        for unseen in {target for target, _ in theirs}:
            pairs = [own[key] - value for key, value in theirs.items() if key[0] == unseen and key in own]
            (row,) = (row for row in rows if row[:2] == [other, unseen])
            count, _, ahead = row[2].partition(": ")
            assert count == str(len(pairs))
            assert ahead.split(", ")[1] == str(sum(one > 0 for one in pairs))
            assert float(row[6].partition(" ")[0]) == pytest.approx(100 * np.mean(pairs), abs=0.051)


def test_a_late_figure_is_the_mean_of_the_last_quarter() -> None:
    (cell,) = (cell for cell in kept_cells(FOLDER) if cell.name == "hfedf-photo")
    lines = (RESULTS / FOLDER / cell.name / "metrics.jsonl").read_text().splitlines()
    late = [record["ood_accuracy"] for record in map(json.loads, lines[150:]) if "ood_accuracy" in record]
    assert late_figure(cell.seeds[0], "ood_accuracy") == pytest.approx(np.mean(late))


def test_one_seed_has_no_interval_and_no_seed_no_difference() -> None:
    one = paired({("photo", 0): 0.5}, {("photo", 0): 0.25})
    assert lead(one) == "+25.0"
    assert lead(None) == ""


def test_a_paper_without_a_figure_has_no_difference() -> None:
    means = (("hfedf", 70.0), ("fedavg", 68.5))
    paper = {(f"{method}-photo", "id_accuracy"): Published(mean, None, "Table 1") for method, mean in means}
    assert published_lead(paper, "fedavg", ["photo"], "id_accuracy") == 1.5
    assert published_lead(paper, "fedavg", ["photo", "sketch"], "id_accuracy") is None
