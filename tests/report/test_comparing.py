"""What a report compares can be compared: one range, one order, one name, and the lines that tell much from little."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from fdgjax.config import INCIDENTAL, read_config, to_plain
from fdgjax.report.domain_figures import accuracy_by_domain
from fdgjax.report.drawing import REFERENCES, OpenPanel, panels_of, sheet
from fdgjax.report.figures import accuracy_by_bytes, accuracy_by_round, keys_of
from fdgjax.report.gallery import TABLES, make_tables
from fdgjax.report.making import PAGE, report
from fdgjax.report.probability_figures import calibration_by_domain
from fdgjax.report.published import figures_for, published_cells
from fdgjax.report.reading import Run, read_runs
from fdgjax.report.references import lines_of
from fdgjax.sweeps.cells import SPECS, read_published, read_spec
from tests.report.folders import DOMAINS, write_run

ELSEWHERE: dict[str, Any] = {"data": {"domains_per_client": 2}}
"""Settings of the data that give a run a panel of its own."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three methods, one of them in two panels, and one unfinished run of four."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "a", "fedavg")
    write_run(folder / "b", "fedavg", **ELSEWHERE)
    write_run(folder / "c", "central")
    write_run(folder / "d", "fedprox", done=4)
    return read_runs([folder])


@pytest.fixture(scope="module")
def page(runs: list[Run]) -> str:
    return str(report(runs, "command", states=False)[PAGE])


@pytest.mark.slow
@pytest.mark.parametrize("same", ["", "x", "y", "xy"])
def test_panels_that_are_compared_have_one_range(same: str) -> None:
    drawn = []
    for i, (x, y) in enumerate((([0, 1], [5, 6]), ([3, 9], [-2, 0]))):
        with sheet() as (drawing, axes):
            axes.plot(x, y)
            drawn.append(OpenPanel(str(i), str(i), f"panel-{i}", drawing, axes))
    before = {letter: [getattr(one.axes, f"get_{letter}lim")() for one in drawn] for letter in "xy"}
    panels_of(drawn, same)
    for letter, limits in before.items():
        wanted = [(min(map(min, limits)), max(map(max, limits)))] * 2 if letter in same else limits
        assert [getattr(one.axes, f"get_{letter}lim")() for one in drawn] == wanted


@pytest.mark.slow
def test_id_and_ood_of_one_target_stand_side_by_side(runs: list[Run]) -> None:
    figure = accuracy_by_round(runs)
    assert figure is not None
    titles = [panel.title for panel in figure.panels]
    panels = list(dict.fromkeys(run.panel for run in runs))
    assert titles == [f"{name}, {panel}" for panel in panels for name in ("id", "ood", "probe")]
    assert [panel.row for panel in figure.panels] == [panel for panel in panels for _ in range(3)]


@pytest.mark.slow
def test_unfinished_runs_are_marked_wherever_they_are_named(runs: list[Run], page: str) -> None:
    for table in make_tables(runs):
        first = [str(row[0]) for row in table.rows]
        assert any(name == "fedprox (unfinished)" for name in first), table.name
        assert not any(name == "fedprox" or ("unfinished" in name and "fedprox" not in name) for name in first)
    names = [key.name for key in keys_of(runs, runs)]
    assert names == ["fedavg", "central", "fedprox (unfinished)"]
    assert "Unfinished, with the figures so far: fedprox, r45 unseen" in page
    assert "4 of 6 rounds" in page


def test_a_series_of_which_some_are_unfinished_says_so(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "fedavg")
    write_run(tmp_path / "b", "fedavg", done=4, **ELSEWHERE)
    both = read_runs([tmp_path])
    assert [key.name for key in keys_of(both, both)] == ["fedavg (some unfinished)"]
    assert [key.name for key in keys_of(both, both[1:])] == ["fedavg (unfinished)"]


@pytest.mark.slow
def test_the_unseen_domain_is_marked_once_in_each_panel_of_bars(runs: list[Run]) -> None:
    figure = accuracy_by_domain(runs)
    assert figure is not None
    assert [panel.svg.count("(unseen)") for panel in figure.panels] == [1] * len(figure.panels)
    everywhere = accuracy_by_domain([run._replace(target="") for run in runs])
    assert everywhere is not None
    assert not any("(unseen)" in panel.svg for panel in everywhere.panels)


@pytest.mark.slow
def test_the_unseen_domain_is_marked_above_its_curve_of_calibration(runs: list[Run]) -> None:
    figure = calibration_by_domain(runs)
    assert figure is not None
    marked = [panel.title for panel in figure.panels if "(unseen)" in panel.title]
    assert len(marked) == len(figure.panels) / len(DOMAINS)
    assert all(title.startswith("r45 (unseen)") for title in marked)


@pytest.mark.slow
def test_lines_to_compare_with_are_drawn_where_they_are_known(runs: list[Run]) -> None:
    fedavg, elsewhere, central, _ = runs
    wanted = float(np.mean(central.values("ood_accuracy")))
    assert lines_of(fedavg, runs, "ood_accuracy") == {"central, as reported": pytest.approx(wanted)}
    # Neither other data nor an unfinished run is compared with.
    assert lines_of(elsewhere, runs, "ood_accuracy") == lines_of(fedavg, [fedavg, elsewhere], "ood_accuracy") == {}
    begun = [fold._replace(seeds=[seed._replace(summary={}) for seed in fold.seeds]) for fold in central.folders]
    assert lines_of(fedavg, [central._replace(folders=begun)], "ood_accuracy") == {}
    known = fedavg._replace(facts=fedavg.facts | {"target_majority": 0.25}, published={"ood_accuracy": 0.5})
    assert lines_of(known, [known, central], "ood_accuracy") == {
        "largest class alone": 0.25,
        "central, as reported": pytest.approx(wanted),
        "published": 0.5,
    }
    assert set(lines_of(known, [known, central], "id_accuracy")) == {"central, as reported"}
    for draw in (accuracy_by_round, accuracy_by_bytes):
        figure = draw([known, central])
        assert figure is not None
        assert [key.name for key in figure.legend if key.kind == "reference"] == list(REFERENCES)


def test_where_a_papers_network_is_pretrained_a_runs_must_be_too() -> None:
    known, spec = list(published_cells()), SPECS / "uap_pacs.py"
    cell = read_spec(spec, "paper")[0]
    keys = flatten_dict(to_plain(read_config(cell.config)), sep=".")
    keys = {key: value for key, value in keys.items() if key not in INCIDENTAL}
    assert figures_for(keys, known) == {}
    own = {"model.pretrained": "timm/resnet18.tv_in1k", "data.scaling": "imagenet", "data.digest": "abc"}
    found = figures_for(keys | own, known)
    assert found["ood_accuracy"] == pytest.approx(read_published(spec)[cell.name, "ood_accuracy"].mean / 100)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["hfedf_pacs", "fdse_pacs"])
def test_a_run_of_a_papers_cell_has_the_papers_figures(spec: str) -> None:
    known, figures = list(published_cells()), read_published(SPECS / f"{spec}.py")
    found: dict[tuple[str, str], float] = {}
    for cell in read_spec(SPECS / f"{spec}.py", "paper"):
        flat = flatten_dict(to_plain(read_config(cell.config)), sep=".")
        keys = {key: value for key, value in flat.items() if key not in INCIDENTAL}
        found |= {(cell.name, name): value for name, value in figures_for(keys, known).items()}
        assert figures_for(keys | {"rounds": keys["rounds"] - 1}, known) == {}
        # Weights lie anywhere, but it matters whether there are any.
        assert figures_for(keys | {"model.pretrained": "/weights"}, known) == {}
        # A run of before a key was there.
        assert figures_for({key: keys[key] for key in keys if key != "drop_nonfinite"}, known) == figures_for(
            keys, known
        )
    cells = {name for name, _ in found}
    assert found == {key: pytest.approx(one.mean / 100) for key, one in figures.items() if key[0] in cells}
    assert len(cells) > 3


@pytest.mark.slow
def test_every_figure_has_its_series_in_one_order(page: str) -> None:
    order = ["fedavg", "central", "fedprox (unfinished)"]
    legends = re.findall(r'<ul class="legend">(.*?)</ul>', page, re.DOTALL)
    each = [[name for name in re.findall(r"</svg>(.*?)</li>", legend) if name in order] for legend in legends]
    assert all(named == [one for one in order if one in named] for named in each)
    assert order in each


@pytest.mark.slow
def test_every_title_is_one_things_and_every_wide_table_says_so(page: str) -> None:
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert len(set(titles)) == len(titles) > len(TABLES)
    assert page.count('class="scroll"') == page.count("more columns: scroll") == page.count("<table>")
