"""Every experiment of a paper is complete, and its table says what it must, and no more."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from fdgjax.cli.reproduce import main
from fdgjax.config import Config, read_config
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.rotated import DOMAINS
from fdgjax.evaluation import Metrics
from fdgjax.evaluation.statistics import Ranked, Spread
from fdgjax.methods import METHODS
from fdgjax.sweeps.cells import (
    PACKAGE,
    SPECS,
    Cell,
    Figures,
    Published,
    Scale,
    as_name,
    configured,
    read_published,
    read_spec,
)
from fdgjax.sweeps.comparison import ComparisonRow, compare, markdown, ranked_markdown, write_tables
from fdgjax.sweeps.papers import EXPERIMENTS
from fdgjax.sweeps.status import summary_of
from fdgjax.utils.checksums import write_checked_json
from fdgjax.utils.errors import UserError
from tests.docs.pages import ROOT

DOMAINS_OF = {
    "pacs": {"photo", "art_painting", "cartoon", "sketch"},
    "office_caltech10": {"amazon", "caltech", "dslr", "webcam"},
    "rotated_mnist": set(DOMAINS),
    "rotated_digits": set(DOMAINS),
}
CELLS = {
    "hfedf_pacs": 32,
    "hfedf_pacs_ablation": 72,
    "hfedf_clients": 96,
    "hfedf_fewshot": 48,
    "fdse_pacs": 13,
    "fdse_office": 13,
    "fdse_ablation": 5,
    "fdse_office_ablation": 5,
    "uap_rotated_mnist": 60,
    "uap_rotated_digits": 60,
    "uap_pacs": 24,
    "fedgala_pacs": 24,
    "fedgala_ablation": 24,
    "pretrained_pacs": 92,
    "pacs_small": 12,
    "rotated_digits": 36,
    "robustness": 227,
    "choosing": 432,
}
"""Rows times unseen domains (times d, clients or shots) of each paper's table."""


def all_specs() -> list[Path]:
    return sorted(SPECS.glob("[!_]*.py"))


def check_cell(cell: Cell) -> Config:
    config = read_config(cell.config)
    known = DOMAINS_OF[config.data.name]
    places = [place for place in (config.data.target, config.data.server) if place]
    assert set(places) <= known
    assert len(set(places)) == len(places), "the server's domain is the unseen one"
    assert bool(config.data.target) == PROTOCOLS[config.data.protocol].unseen, "each unseen domain is said, not assumed"
    kinds = {figure.partition(".")[0] for figure in cell.figures}
    assert kinds <= set(Metrics._fields)
    entry = METHODS[config.method.name]
    assert entry.unlabelled == (kinds == {"probe_by_percent"})
    assert (entry.protocol == "labelled_server") == (config.data.protocol == "labelled_server")
    return config


@pytest.mark.parametrize("path", all_specs(), ids=lambda path: path.stem)
def test_every_cell_of_every_experiment_is_an_experiment(path: Path) -> None:
    whole = read_spec(path, "paper")
    assert len(whole) == CELLS[path.stem]
    for scale in ("paper", "cpu") if path in EXPERIMENTS.values() else ("paper",):
        cells = read_spec(path, scale)
        configs = [check_cell(cell) for cell in cells]
        assert len({cell.name for cell in cells}) == len(cells)
        assert len({str(config) for config in configs}) == len(configs), "two cells are one experiment"
        assert {cell.name for cell in cells} <= {cell.name for cell in whole}
        assert not {cell.name for cell in cells} & {cell.group for cell in cells}
        assert {bool(cell.reduced) for cell in cells} == {scale == "cpu"}
    with pytest.raises(UserError, match="unknown scale 'huge'"):
        read_spec(path, "huge")


@pytest.mark.parametrize("path", all_specs(), ids=lambda path: path.stem)
def test_published_figures_are_those_of_cells(path: Path) -> None:
    cells, published = read_spec(path, "paper"), read_published(path)
    figures = {(name, figure) for cell in cells for name in (cell.name, cell.group) for figure in cell.figures}
    assert set(published) <= figures
    # Where the mean and all that it is of are printed, they agree to rounding.
    for (name, figure), entry in published.items():
        assert 0 < entry.mean < 100
        assert "Table" in entry.table
        members = [published.get((cell.name, figure)) for cell in cells if cell.group == name]
        if members and all(members):
            assert entry.mean == pytest.approx(sum(one.mean for one in members if one) / len(members), abs=0.1)


def test_a_published_figure_that_is_no_number_is_named(tmp_path: Path) -> None:
    for row in ("one,ood_accuracy,high,,Table 1", "one,ood_accuracy"):
        (tmp_path / "spec.csv").write_text(f"# remark\nname,figure,mean,deviation,table\n{row}\n")
        with pytest.raises(UserError, match=r"has the row one,ood_accuracy.*expected name,figure,mean"):
            read_published(tmp_path / "spec.py")


def test_an_experiment_that_does_not_exist_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "hfedf-pac", "--out", "nowhere"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "unknown experiment 'hfedf-pac'" in line
    assert "did you mean 'hfedf-pacs'?" in line


def test_the_documentation_lists_the_experiments() -> None:
    page = (ROOT / "docs" / "many_runs.md").read_text()
    listed = re.findall(r"^\| `([a-z-]+)` \| .* \| (\d+) \|$", page, re.MULTILINE)
    assert listed == [(name, str(CELLS[path.stem])) for name, path in EXPERIMENTS.items()]


def test_uaps_domains_show_the_same_images() -> None:
    for scale in ("paper", "cpu"):
        assert all(cell.config.data.same_images for cell in read_spec(EXPERIMENTS["uap-rotated-mnist"], scale))


def test_figures_that_were_copied_are_the_papers() -> None:
    """Some of each table, read off the papers a second time."""
    for name, cell, figure, expected in (
        ("hfedf-pacs", "hfedf-photo", "ood_accuracy", (63.1, 1.3)),
        ("hfedf-pacs", "fedsr-sketch", "id_accuracy", (68.9, 9.4)),
        ("hfedf-pacs-ablation", "without_ema-d3", "ood_accuracy", (54.5, None)),
        ("fdse-pacs", "ditto", "avg_accuracy", (80.03, 1.37)),
        ("fdse-ablation", "AB", "all_accuracy", (83.40, None)),
        ("fdse-office-ablation", "AC", "avg_accuracy", (89.25, None)),
        ("uap-rotated-mnist", "uap-r45-r30", "ood_accuracy", (84.1, None)),
        ("uap-rotated-mnist", "ssfl-r60-r75", "ood_accuracy", (77.3, None)),
        ("uap-pacs", "ssfl-sketch-photo", "ood_accuracy", (32.34, None)),
        ("uap-pacs", "uap-photo-sketch", "ood_accuracy", (32.50, None)),
        ("fedgala-pacs", "fedgala-cartoon", "probe_by_percent.30", (65.7, 1.6)),
        ("fedgala-ablation", "without_local-art_painting", "probe_by_percent.10", (41.6, 1.4)),
    ):
        assert read_published(EXPERIMENTS[name])[cell, figure][:2] == expected


@pytest.mark.parametrize("path", all_specs(), ids=lambda path: path.stem)
def test_what_a_scale_says_of_itself_is_said_of_its_cells(path: Path) -> None:
    scales = getattr(import_module(f"{PACKAGE}.{path.stem}"), "SCALES", {})
    for name, scale in scales.items():
        if not isinstance(scale, Scale):  # one for each of two data sets, say
            continue
        cells = read_spec(path, name)
        assert all(cell.reduced == scale.reduced and scale.note in cell.note for cell in cells)


def test_a_scale_lays_its_changes_over_the_preset_and_a_cell_its_own_over_both() -> None:
    config = configured("fedavg", Scale("pacs", {"rounds": 3, "data": {"target": "sketch"}}), data={"clients": 6})
    assert (config.rounds, config.data.target, config.data.clients, config.data.image_size) == (3, "sketch", 6, 32)


def finished(out: Path, name: str, **figures: object) -> None:
    (out / name).mkdir(parents=True)
    write_checked_json(out / name / "summary.json", figures)


def rows_of(cells: list[Cell], out: Path, published: Figures) -> dict[str, ComparisonRow]:
    summaries = {cell.name: summary_of(out, cell.name) for cell in cells}
    return {row.name: row for row in compare(cells, out, published, summaries)}


def test_a_verdict_is_by_both_intervals_and_the_test_images(tmp_path: Path) -> None:
    names = ("ours", "theirs", "images", "same", "better", "worse", "unpublished", "unfinished")
    cells = [Cell(name, ConfigDict(), group="mean") for name in names]
    for name in names[:-1]:
        # Ours: three seeds whose mean, 60 %, has the interval 60 +- 4.303 * 1 / sqrt(3) = 60 +- 2.48.
        values = [0.59, 0.6, 0.61]
        images = {"test_images": {"ood_accuracy": 600.0}} if name in ("images", "same") else {}
        per_seed = {str(seed): {"ood_accuracy": value} for seed, value in enumerate(values)}
        finished(tmp_path, name, ood_accuracy=0.6, std={"ood_accuracy": 0.01}, per_seed=per_seed, **images)
    published = {
        "ours": Published(62.4, None, "Table 1"),
        # Both: s^2 = (2 * 1 + 4 * 8^2) / 6, 2.447 * 6.56 * sqrt(1 / 3 + 1 / 5) = 11.72.
        "theirs": Published(71.7, 8.0, "Table 1", 5),
        # Two standard errors of 600 images are 1.96 * 2 = 3.92, with 2.48 together 4.64.
        "images": Published(64.6, None, "Table 1"),
        # No error of images that the paper has, too.
        "same": Published(64.6, None, "Table 1", same_images=True),
        "better": Published(57.4, None, "Table 1"),
        # Over how many seeds is not said.
        "worse": Published(62.6, 8.0, "Table 1"),
    }
    rows = rows_of(cells, tmp_path, {(name, "ood_accuracy"): figure for name, figure in published.items()})
    verdicts = {name: row.verdict for name, row in rows.items()}
    expected = dict.fromkeys(("ours", "theirs", "images"), "reproduced") | {
        "better": "better",
        "worse": "worse",
        "same": "worse",
    }
    assert verdicts == expected | {"unpublished": "", "unfinished": "", "mean": ""}
    tolerances = {name: row.tolerance for name, row in rows.items() if row.tolerance is not None}
    assert tolerances == pytest.approx(
        {"ours": 2.484, "theirs": 11.717, "images": 4.641, "same": 2.484, "better": 2.484, "worse": 2.484}, abs=0.001
    )
    assert rows["mean"].ours is None, "a mean over cells of which one is missing"
    finished(tmp_path, "unfinished", ood_accuracy=0.2)
    assert rows_of(cells, tmp_path, {})["mean"].ours == pytest.approx(55)
    assert "| worse | ood_accuracy | 60.0 ± 1.0 | 3 | 62.6 ± 8.0 | -2.6 | 2.5 | worse | Table 1 |" in markdown(
        [rows["worse"]], []
    )


def test_a_cell_of_one_seed_says_so(tmp_path: Path) -> None:
    finished(tmp_path, "one", ood_accuracy=0.6)
    cells = [Cell("one", ConfigDict())]
    # Of a single value by three with a deviation of 3: 4.303 * 3 * sqrt(1 + 1 / 3) = 14.9.
    for mean, verdict in ((74.0, "reproduced, one seed"), (75.0, "worse, one seed")):
        published = {("one", "ood_accuracy"): Published(mean, 3.0, "", 3)}
        assert rows_of(cells, tmp_path, published)["one"].verdict == verdict


def test_a_sweeps_table_begins_with_its_methods_ranked(tmp_path: Path) -> None:
    cells = []
    for method, gain in (("fedavg", 0.0), ("fedomg", 0.05)):
        for target, base in (("r0", 0.3), ("site 1", 0.5)):
            name, config = f"{method}-{as_name(target)}", ConfigDict({"data": {"target": target}, "seed": 0})
            cells.append(Cell(name, config))
            factors = (1.0, 1.2) if target == "r0" else (1.2, 1.0)
            values = [base + factors[0] * gain, base + 0.02 + factors[1] * gain]
            per_seed = {str(seed): {"ood_accuracy": value} for seed, value in enumerate(values)}
            finished(tmp_path, name, ood_accuracy=sum(values) / 2, per_seed=per_seed)
    write_tables(cells, tmp_path, {})
    _, _, first, second, *_ = (tmp_path / "table.md").read_text().splitlines()
    assert first == "| ood | 1 | fedomg | 46.5 ± 1.4 | 2 | 2 |  |  |  |  |"
    # Differences of 5 and 6 points, of 6 and 5: mean 5.5, s^2 = 1 / 2, error 0.354, t of two degrees 4.303.
    assert second == "| ood | 2 | fedavg | 41.0 ± 1.4 | 2 | 2 | -5.5 | -7.0 to -4.0 | 0 of 4 | behind |"


def test_methods_without_an_unseen_domain_are_ranked_too(tmp_path: Path) -> None:
    config, cells = {"data": {"target": ""}, "seed": 0}, []
    for method, values in {"fedavg": (0.3, 0.4, 0.5), "fedbn": (0.36, 0.45, 0.56)}.items():
        cells.append(Cell(method, ConfigDict(config), ("all_accuracy",)))
        per_seed = {str(seed): {"all_accuracy": value} for seed, value in enumerate(values)}
        finished(tmp_path, method, all_accuracy=sum(values) / 3, per_seed=per_seed)
    write_tables(cells, tmp_path, {})
    _, _, first, second, *_ = (tmp_path / "table.md").read_text().splitlines()
    assert first.startswith("| ALL | 1 | fedbn | 45.7 ")
    # Differences of 6, 5 and 6 points: mean 5.67, error 1 / 3, t of two degrees 4.303.
    assert second == "| ALL | 2 | fedavg | 40.0 ± 10.0 | 3 | 1 | -5.7 | -7.1 to -4.2 | 0 of 3 | behind |"


def test_runs_of_one_name_each_are_not_compared_across_targets(tmp_path: Path) -> None:
    cells = []
    for name, target, value in (("one", "r0", 0.5), ("two", "r15", 0.6)):
        cells.append(Cell(name, ConfigDict({"data": {"target": target}, "seed": 0})))
        finished(tmp_path, name, ood_accuracy=value, per_seed={"0": {"ood_accuracy": value}})
    write_tables(cells, tmp_path, {})
    assert all(row.endswith("|  |  |  |  |") for row in (tmp_path / "table.md").read_text().splitlines()[2:4])


def test_a_mean_over_cells_has_the_deviation_of_the_seeds_means(tmp_path: Path) -> None:
    cells = [Cell(name, ConfigDict(), group="mean") for name in ("one", "two")]
    for name, values in {"one": (0.5, 0.7), "two": (0.1, 0.3)}.items():
        per_seed = {str(seed): {"ood_accuracy": value} for seed, value in enumerate(values)}
        finished(tmp_path, name, ood_accuracy=sum(values) / 2, per_seed=per_seed)
    row = rows_of(cells, tmp_path, {("mean", "ood_accuracy"): Published(50.0, None, "Table 1")})["mean"]
    # Means 30 % and 50 % of the two seeds.
    assert (row.ours, row.deviation) == (pytest.approx(40), pytest.approx(200**0.5))
    assert row.verdict == "reproduced"


def test_a_seed_without_the_figure_is_left_out_of_a_means_deviation(tmp_path: Path) -> None:
    cells = [Cell(name, ConfigDict(), ("ood_auroc",), group="mean") for name in ("one", "two")]
    for name, values in {"one": (0.5, None, 0.7), "two": (0.1, 0.2, 0.3)}.items():
        per_seed = {str(seed): {} if value is None else {"ood_auroc": value} for seed, value in enumerate(values)}
        finished(tmp_path, name, ood_auroc=0.4, per_seed=per_seed)
    row = rows_of(cells, tmp_path, {})["mean"]
    # Means 30 % and 50 % of the seeds 0 and 2.
    assert (row.seeds, row.deviation) == (2, pytest.approx(200**0.5))
    assert rows_of(cells, tmp_path, {})["one"].seeds == 2
    assert rows_of(cells, tmp_path, {})["two"].seeds == 3


def test_less_is_better_of_losses(tmp_path: Path) -> None:
    per_seed = {str(seed): {"ood_log_loss": value} for seed, value in enumerate((0.89, 0.91))}
    finished(tmp_path, "one", ood_log_loss=0.9, std={"ood_log_loss": 0.0141}, per_seed=per_seed)
    cells = [Cell("one", ConfigDict(), ("ood_log_loss",))]
    for published, verdict in ((0.5, "worse"), (1.2, "better")):
        rows = rows_of(cells, tmp_path, {("one", "ood_log_loss"): Published(published, None, "")})
        assert rows["one"].verdict == verdict


def test_less_than_the_papers_protocol_is_never_a_verdict(tmp_path: Path) -> None:
    cells = [Cell("one", ConfigDict(), ("probe_by_percent.10",), reduced="two rounds", note="another network")]
    finished(tmp_path, "one", probe_by_percent={"10": 0.7})
    write_tables(cells, tmp_path, {("one", "probe_by_percent.10"): Published(60.0, 1.0, "Table 1")})
    table = (tmp_path / "table.md").read_text()
    row = "| one | probe_by_percent.10 | 70.0 | 1 | 60.0 ± 1.0 | +10.0 | reduced | Table 1 | another network |"
    assert row in table
    assert table.endswith("\nReduced: two rounds.\n")
    header, row = (tmp_path / "table.csv").read_text().splitlines()
    assert header == ",".join(ComparisonRow._fields)
    assert row == "one,probe_by_percent.10,70.00,,1,60.00,1.00,10.00,,reduced,Table 1,another network"


def test_a_ranking_s_note_says_what_its_numbers_are() -> None:
    one = lambda name, mean, place: Ranked(name, place, Spread(mean), 1, None)  # noqa: E731
    found = {"ood_accuracy": [one("a", 0.5, 1)], "ood_log_loss": [one("a", 0.639, 1), one("b", 0.75, 2)]}
    text = ranked_markdown(found)
    assert "| 0.639 |" in text
    assert "times 100" not in text
    assert "Smaller values are better of ood log loss;" in text
    assert "Smaller values" not in ranked_markdown({"ood_accuracy": found["ood_accuracy"]})
