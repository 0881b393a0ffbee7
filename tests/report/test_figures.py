"""Every figure is there when its data are, and not when they are not; what is drawn is what the numbers say."""

import itertools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdgjax.evaluation.number_figures import NUMBER_HEADLINES
from fdgjax.evaluation.probability_figures import figure_headlines
from fdgjax.evaluation.statistics import by_point
from fdgjax.experiments import DataDescription
from fdgjax.inference.client_models import layer_distances
from fdgjax.report.domain_figures import unseen_domains
from fdgjax.report.drawing import (
    COLOURS,
    FILLS,
    HATCHES,
    INK,
    Key,
    Panel,
    as_svg,
    bars,
    colour,
    dashes,
    fill,
    hatch,
    marker,
    sheet,
)
from fdgjax.report.figure_files import figure_files, finish
from fdgjax.report.figures import accuracy_by_round, series_of
from fdgjax.report.folders import Seed
from fdgjax.report.gallery import FIGURES
from fdgjax.report.method_figures import aggregation_weights, bins_of, clients_seen, discard_rates, grouped, weights_of
from fdgjax.report.page import FILLED, HATCHED
from fdgjax.report.reading import Run
from fdgjax.report.state_figures import flat
from fdgjax.report.trained_states import evenly_spaced
from tests.report.folders import record, two_methods

Change = Callable[[Run], Run]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    return two_methods(tmp_path_factory.mktemp("runs"))


def lacking(*keys: str) -> Change:
    """The run without some keys of its figures and records."""

    def seed_lacking(seed: Seed) -> Seed:
        def rest(content: dict) -> dict:
            return {key: value for key, value in content.items() if key not in keys}

        return seed._replace(figures=rest(seed.figures), records=[rest(one) for one in seed.records])

    def changed(run: Run) -> Run:
        folders = [folder._replace(seeds=[seed_lacking(seed) for seed in folder.seeds]) for folder in run.folders]
        return run._replace(folders=folders)

    return changed


def unseen(**parts: Any) -> Change:
    """The run whose trained state lacks something."""
    return lambda run: run._replace(trained_state=run.trained_state and run.trained_state._replace(**parts))


def left_nothing(run: Run) -> Run:
    """The run whose folders hold no files."""
    return run._replace(folders=[folder._replace(path=folder.path / "nowhere") for folder in run.folders])


@pytest.mark.slow
def test_the_share_of_the_largest_class_is_a_line_on_the_unseen_domain_alone(runs: list[Run]) -> None:
    known = [run._replace(facts=run.facts | {"target_majority": 0.2}) for run in runs]
    before, after = (accuracy_by_round(each) for each in (runs, known))
    assert before is not None
    assert after is not None
    more = {
        b.title: a.svg.count("dasharray") - b.svg.count("dasharray")
        for a, b in zip(after.panels, before.panels, strict=True)
    }
    assert set(more.values()) == {0, 1}
    assert all(lines == title.startswith("ood") for title, lines in more.items())


ACCURACIES = ("id_accuracy", "ood_accuracy", "probe_accuracy")

WITHOUT: Mapping[str, Change] = {
    "accuracy_by_round": lacking(*ACCURACIES),
    "accuracy_by_bytes": lambda run: run._replace(facts={}),
    "accuracy_by_domain": lacking("per_domain_accuracy"),
    "unseen_domains": lacking("ood_accuracy"),
    "errors_by_round": lacking(*NUMBER_HEADLINES),
    "errors_by_domain": lacking("per_domain_rmse"),
    "unseen_errors": lacking("ood_rmse"),
    "fairness": lacking("per_domain_accuracy", "client_accuracy"),
    "radar": lacking("per_domain_accuracy", "client_accuracy"),
    "aggregation_weights": lacking("coefficients/weights/a", "coefficients/weights/b"),
    "discard_rate": lacking("coefficients/discarded"),
    "probe_by_labels": lacking("probe_by_percent"),
    "probes_again": left_nothing,
    "domain_shift": left_nothing,
    "reliability": lacking("calibration"),
    "figures_by_round": lacking(*figure_headlines()),
    "calibration_by_domain": lacking("per_domain_calibration"),
    "confidence": lacking("calibration"),
    "embeddings": unseen(embeddings=None),
    "divergence": unseen(divergence={}),
    "features": unseen(features=None),
}
"""What takes a figure's data away."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_there_when_its_data_are(name: str, runs: list[Run]) -> None:
    figure = FIGURES[name].draw(runs)
    assert figure is not None
    assert figure.panels
    for panel in figure.panels:
        ElementTree.fromstring(panel.svg)
        assert panel.title
        assert "viewBox" in panel.svg.partition(">")[0]
        assert not re.search(rf'http|<style|#c0de|{INK}|(width|height)="[0-9.]+pt', panel.svg), panel.title
        assert "currentColor" in panel.svg or "var(--c" in panel.svg
    assert len(figure_files({name: figure}, ["svg"])) == len(figure.panels)
    assert FIGURES[name].draw([WITHOUT[name](run) for run in runs]) is None


@pytest.mark.parametrize("name", FIGURES)
def test_runs_that_have_just_begun_have_no_figure(name: str, runs: list[Run]) -> None:
    begun = [
        run._replace(
            trained_state=None,
            facts={"rounds": 6},
            folders=[
                folder._replace(
                    path=folder.path / "begun",
                    seeds=[seed._replace(figures={}, records=[], summary={}) for seed in folder.seeds],
                )
                for folder in run.folders
            ],
        )
        for run in runs
    ]
    assert FIGURES[name].draw(begun) is None
    assert FIGURES[name].draw([]) is None


def test_a_series_has_one_colour_and_no_two_look_the_same(runs: list[Run]) -> None:
    assert series_of(runs) == {"fedavg": 0, "hfedf": 1}
    assert len({(colour(i), str(dashes(i))) for i in range(4 * COLOURS)}) == 4 * COLOURS
    assert len({(colour(i), marker(i)) for i in range(8 * COLOURS)}) == 8 * COLOURS


@settings(derandomize=True, deadline=None, max_examples=30)
@given(arrays(float, (4, 3), elements=st.one_of(st.floats(0, 1), st.just(np.nan))))
def test_mean_and_deviation_of_what_is_there(values: np.ndarray) -> None:
    mean, std = by_point(values)
    for column, one, deviation in zip(values.T, mean, std, strict=True):
        there = column[np.isfinite(column)]
        np.testing.assert_allclose(one, there.mean() if len(there) else np.nan)
        np.testing.assert_allclose(deviation, there.std(ddof=1) if len(there) > 1 else np.nan, atol=1e-12)


def test_aggregation_weights_are_those_of_the_records(runs: list[Run]) -> None:
    assert clients_seen(runs[0]) == 4
    found = weights_of(runs[0].seeds[1], 4)
    assert set(found) == {"weights"}
    for round_, row in enumerate(found["weights"], start=1):
        line = record("fedavg", 1, round_)
        wanted = np.mean([line["coefficients/weights/a"], line["coefficients/weights/b"]], axis=0)
        np.testing.assert_allclose(row[[0, 2, 3]], wanted)
        assert np.isnan(row[1])


def test_discard_rates_are_the_means_over_clients_of_the_rounds_that_a_seed_has(runs: list[Run]) -> None:
    folder = runs[0].folders[0]
    whole, begun = folder.seeds
    run = runs[0]._replace(folders=[folder._replace(seeds=[whole, begun._replace(records=begun.records[:4])])])
    wanted = [
        [np.mean(record("fedavg", seed, round_)["coefficients/discarded"]) for round_ in range(1, 7)] for seed in (0, 1)
    ]
    wanted[1][4:] = [np.nan] * 2
    rates = discard_rates(run)
    assert rates is not None
    np.testing.assert_allclose(rates, wanted)


def test_what_a_defence_did_is_drawn_beside_the_weights() -> None:
    line = {"participants": [0, 2], "defence/share": [0.25, 0.75], "defence/factor": [1.0, 0.5], "defence/norm": [1, 2]}
    assert grouped(line) == {"share in the robust centre": [[0.25, 0.75]], "factor of clipping": [[1.0, 0.5]]}


def test_seeds_need_not_have_drawn_the_same_clients(runs: list[Run]) -> None:
    folder = runs[0].folders[0]
    first, second = folder.seeds
    drawn = [line | {"participants": [0, 1, 2]} for line in second.records]
    run = runs[0]._replace(folders=[folder._replace(seeds=[first, second._replace(records=drawn)])])
    figure = aggregation_weights([run])
    assert figure is not None
    assert [key.name for key in figure.legend] == [f"client {i}" for i in range(4)]


def test_clients_with_names_are_called_by_them(runs: list[Run]) -> None:
    names = ("one", "two", "three", "four")
    data = DataDescription(("a", "b"), names, "", (2,), 4, (9, 2), {}, client_names=names)
    named = runs[0]._replace(folders=[folder._replace(data=data) for folder in runs[0].folders])
    for run, wanted in ((named, names), (runs[0], tuple(f"client {i}" for i in range(4)))):
        figure = aggregation_weights([run])
        assert figure is not None
        assert tuple(key.name for key in figure.legend) == wanted
        assert [key.name for panel in figure.panels for key in panel.legend or ()] == [*wanted] * len(figure.panels)
    both = aggregation_weights([named, runs[0]])
    assert both is not None
    assert both.legend[0].name == "client 0", "panels with other names have one legend"


def test_calibration_is_summed_over_seeds(runs: list[Run]) -> None:
    bins = bins_of(runs[0])
    assert bins is not None
    for name, values in bins.items():
        wanted = sum(np.asarray(record("fedavg", seed, 6)["calibration"][name]) for seed in (0, 1))
        np.testing.assert_allclose(values, wanted)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(arrays(float, (3, 2, 2), elements=st.floats(-2, 2)), arrays(float, (3, 2), elements=st.floats(-2, 2)))
def test_divergence_is_the_mean_distance_of_pairs(kernel: np.ndarray, bias: np.ndarray) -> None:
    models = [
        {"params": {"head": {"kernel": kernel[i], "bias": bias[i]}}, "batch_stats": {"bn": {"mean": bias[i]}}}
        for i in range(3)
    ]
    flat_ = np.concatenate([bias, kernel.reshape(3, -1)], axis=1)
    apart = np.mean([np.linalg.norm(flat_[i] - flat_[j]) for i, j in ((0, 1), (0, 2), (1, 2))])
    size = np.mean([np.linalg.norm(one) for one in flat_])
    found = layer_distances(models)
    assert set(found) == {"head"}
    np.testing.assert_allclose(found["head"] * size, apart, atol=1e-9)


def test_embeddings_of_two_dimensions_keep_their_distances() -> None:
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(6, 2)) @ rng.normal(size=(2, 5))
    points, names = flat(plane)
    for i in range(6):
        wanted, shown = (np.linalg.norm(each - each[i], axis=1) for each in (plane, points))
        np.testing.assert_allclose(shown, wanted, atol=1e-9)
    assert [name.partition(" (")[0] for name in names] == ["component 1", "component 2"]
    np.testing.assert_array_equal(flat(plane[:, :2])[0], plane[:, :2])
    np.testing.assert_array_equal(flat(plane[:, :1])[0], np.pad(plane[:, :1], ((0, 0), (0, 1))))
    np.testing.assert_allclose(flat(plane[:1])[0], np.zeros((1, 2)), atol=1e-9)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(0, 200), st.integers(1, 50))
def test_samples_are_thinned_evenly(many: int, most: int) -> None:
    kept = evenly_spaced(np.arange(many), most)
    assert len(kept) == min(many, most)
    assert len(np.unique(kept)) == len(kept)
    if len(kept) > 2:
        assert np.ptp(np.diff(kept)) <= 1


def test_bars_and_dots_are_told_apart_beyond_the_colours() -> None:
    looks = range(4 * COLOURS)
    assert len({(colour(i), hatch(i)) for i in looks}) == len({(colour(i), fill(i)) for i in looks}) == len(looks)
    assert set(HATCHES) == set(HATCHED)
    assert set(FILLS) == set(FILLED)
    with sheet() as (drawing, axes):
        bars(axes, ["a"], [np.ones((2, 1))] * (COLOURS + 1), list(range(COLOURS + 1)))
        drawn = as_svg(drawing, "bars")
    # The first and the last have one colour, and the last alone is hatched.
    assert drawn.count("<pattern") == 1
    (name,) = re.findall(r'<pattern id="([^"]*)"', drawn)
    assert drawn.count(f"fill: url(#{name})") == 1


def test_a_file_s_legend_has_what_is_in_its_panel_and_is_whole() -> None:
    long = [f"a method, with a setting of so many words {i}" for i in range(4)]
    keys = [Key(name, i) for i, name in enumerate(long)]
    with sheet() as (drawing, axes):
        axes.plot([0, 1], [0, 1])
        panel = Panel("t", "", "n", drawing, "", tuple(keys[1:]))
    finish(panel, keys)
    (legend,) = drawing.legends
    assert [text.get_text() for text in legend.get_texts()] == long[1:]
    drawing.draw_without_rendering()
    assert all(drawing.bbox.contains(*corner) for corner in legend.get_window_extent().corners())
    # Short names stand side by side, in more than three columns.
    with sheet() as (drawing, axes):
        panel = Panel("t", "", "n", drawing)
    finish(panel, [Key(name, i) for i, name in enumerate("abcde")])
    assert len({round(text.get_window_extent().y0) for text in drawing.legends[0].get_texts()}) == 1
    assert drawing.get_figwidth() == 4.6


def test_names_of_unseen_domains_do_not_run_into_each_other(runs: list[Run]) -> None:
    several = [run._replace(panel=f"{name} unseen") for run in runs for name in ("art", "a cartoon in ink")]
    for whole in (several, [*several, runs[0]._replace(panel="every domain, and what is more")]):
        figure = unseen_domains(whole)
        assert figure is not None
        drawing = figure.panels[0].drawing
        drawing.draw_without_rendering()
        labels = drawing.axes[0].get_xticklabels()
        same = whole is several
        assert all(("unseen" in label.get_text()) != same for label in labels[:2])
        assert drawing.axes[0].get_xlabel() == ("unseen domain" if same else "")
        if not any(label.get_rotation() for label in labels):
            ends = [label.get_window_extent() for label in labels]
            assert all(left.x1 < right.x0 for left, right in itertools.pairwise(ends))


def test_long_names_are_tilted() -> None:
    turned = []
    for names in (["a", "b"], [f"a domain with a long name {i}" for i in range(4)]):
        with sheet() as (drawing, axes):
            bars(axes, names, [np.ones((2, len(names)))], [0])
            turned.append("rotate(-35 " in as_svg(drawing, "bars"))
    assert turned == [False, True]


def test_ids_belong_to_one_drawing(tmp_path: Path) -> None:
    drawn = []
    for name in ("one", "other"):
        with sheet() as (drawing, axes):
            axes.plot([0, 1], [0, 1], "o", color=colour(0))
            drawn.append(as_svg(drawing, name))
    ids = [set(re.findall(r'\bid="([^"]*)"', svg)) for svg in drawn]
    assert all(ids)
    assert not ids[0] & ids[1]
    for svg, own in zip(drawn, ids, strict=True):
        assert set(re.findall(r'(?:href="|url\()#([^")]*)', svg)) <= own
