"""Tables say what NumPy says of the folders, in every format."""

import csv
import html
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from fdgjax.evaluation.statistics import Spread
from fdgjax.report.formats import as_csv, as_latex, as_markdown
from fdgjax.report.gallery import make_tables
from fdgjax.report.page import make_page
from fdgjax.report.reading import EVERY_DOMAIN, read_runs
from fdgjax.report.tables import Cell, Column, Table, compared
from tests.report.folders import DOMAINS, lines_of, two_methods, write_run


def rows_of(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_csv(table))))


def over_seeds(path: Path, *keys: str) -> np.ndarray:
    """A figure of the last round of both seeds."""
    found = []
    for seed in (0, 1):
        value = lines_of(path, seed)[-1]
        for key in keys:
            value = value[key]
        found.append(value)
    return np.asarray(found)


def cells_of(text: str, kind: str) -> list[list[str]]:
    """Rows of cells of a formatted table."""
    if kind == "html":
        text = text.partition('id="table-results"')[2].partition("<tbody>")[2].partition("</table>")[0]
        rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", text)]
        return [[html.unescape(cell) for cell in row] for row in rows if row]
    if kind == "markdown":
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[6:]]
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    plain = re.sub(r"\\textbf{(.*?)}", r"\1", re.sub(r"\$_{\\pm (.*?)}\$", r" ± \1", body)).replace("\\_", "_")
    return [[cell.strip() for cell in line.removesuffix(r"\\").split("&")] for line in plain.strip().splitlines()]


def test_results_in_every_format(tmp_path: Path) -> None:
    runs = two_methods(tmp_path)
    tables = {table.name: table for table in make_tables(runs)}
    results = tables["results"]
    readers = {
        "html": make_page(runs, [results], {}, "command", []),
        "markdown": as_markdown(results),
        "latex": as_latex(results),
    }
    keys = ("id_accuracy", "ood_accuracy", "worst_domain_accuracy", "ece")
    for i, (method, row) in enumerate(zip(("fedavg", "hfedf"), rows_of(results), strict=True)):
        assert (row["method"], row["panel"], row["seeds"], row["rounds"]) == (method, "r45 unseen", "2", "6")
        for key in keys:
            values = over_seeds(tmp_path / method, key)
            mean, std = np.mean(values), np.std(values, ddof=1)
            assert float(row[key]) == pytest.approx(mean, rel=1e-12)
            assert float(row[f"{key}_std"]) == pytest.approx(std, rel=1e-12)
            for kind, text in readers.items():
                assert f"{100 * mean:.1f} ± {100 * std:.1f}" in cells_of(text, kind)[i], (kind, key)
        assert (float(row["bytes_up"]), float(row["bytes_down"])) == (6 * 3e6, 6 * 1e6)
        assert float(row["seconds"]) == 12.5
        for kind, text in readers.items():
            assert cells_of(text, kind)[i][-3:] == ["18.0", "6.0", "12"], kind


def test_settings_that_differ_are_in_one_table(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "fedavg")
    write_run(tmp_path / "b", "hfedf", local_epochs=3)
    write_run(tmp_path / "c", "hfedf", local_epochs=3, seeds=(5,), rounds=6)
    tables = {table.name: table for table in make_tables(read_runs([tmp_path]))}
    rows = rows_of(tables["settings"])
    assert [(row["method"], row["local_epochs"]) for row in rows] == [("fedavg", "2"), ("hfedf", "3")]
    holders = [table.name for table in tables.values() if any(column.key == "local_epochs" for column in table.columns)]
    assert holders == ["settings"]


def test_a_ranking_is_by_pairs_of_domain_and_seed(tmp_path: Path) -> None:
    for method in ("fedavg", "fedprox", "hfedf"):
        for name, clients in (("all", 0), ("few", 3)):
            write_run(tmp_path / f"{method}-{name}", method, data={"clients": clients})
    runs = read_runs([tmp_path])
    tables = {table.name: table for table in make_tables(runs)}
    ood = [row for row in rows_of(tables["ranking"]) if row["figure"] == "ood"]
    means = {
        run.series: np.mean([one.values("ood_accuracy") for one in runs if one.series == run.series]) for run in runs
    }
    assert [row["method"] for row in ood] == sorted(means, key=lambda name: -means[name])
    assert [row["place"] for row in ood] == ["1", "2", "3"]
    first = np.concatenate([run.values("ood_accuracy") for run in runs if run.series == ood[0]["method"]])
    for row in ood[1:]:
        apart = np.concatenate([run.values("ood_accuracy") for run in runs if run.series == row["method"]]) - first
        # The runs' figures are the same for all clients and for few: two targets tell no more of a seed than one.
        assert apart[:2] == pytest.approx(apart[2:])
        assert float(row["behind"]) == pytest.approx(apart.mean())
        assert float(row["error"]) == pytest.approx(np.std(apart[:2], ddof=1) / np.sqrt(2))
        # t of one degree of freedom, from a table.
        assert float(row["high"]) == pytest.approx(apart.mean() + 12.7062 * float(row["error"]), rel=1e-5)
        assert row["wins"] == f"{np.sum(apart > 0)} of 4"
    whole = runs[0]._replace(panel=EVERY_DOMAIN)
    assert compared([*runs, whole], "ood_accuracy") == compared(runs, "ood_accuracy")
    assert compared([whole], "ood_accuracy")
    by_target = rows_of(tables["ranking_by_target"])
    assert len(by_target) == 6
    for panel in {run.panel for run in runs}:
        each = [float(row["mean"]) for row in by_target if row["panel"] == panel]
        assert each == sorted(each, reverse=True)


def test_a_figure_of_probabilities_has_one_unit_in_all_tables(tmp_path: Path) -> None:
    tables = {table.name: table for table in make_tables(two_methods(tmp_path))}
    loss, auroc = (
        [over_seeds(tmp_path / method, key).mean() for method in ("fedavg", "hfedf")]
        for key in ("ood_log_loss", "ood_auroc")
    )
    for name in ("figures", "figures_ranking"):
        text = as_markdown(tables[name])
        assert all(f"| {mean:.3f} ± " in text for mean in (*loss, *auroc)), name
        assert "%)" not in text
    ranked = [row for row in rows_of(tables["figures_ranking"]) if row["figure"] == "ood log loss"]
    assert [float(row["mean"]) for row in ranked] == sorted(loss)
    assert float(ranked[1]["behind"]) == pytest.approx(-abs(loss[1] - loss[0]))


def test_latex_has_the_best_in_bold_and_methods_as_papers_write_them() -> None:
    rows: list[list[Cell]] = [
        ["fedavg", "id", Spread(0.5), None],
        ["feddg_ga, mu 2", "id", Spread(0.7, 0.01, 3), Spread(0.2)],
        ["fedavg", "ood", Spread(0.42), Spread(0.31)],
        ["hfedf (unfinished)", "ood", Spread(0.4204), Spread(0.3)],
        ["fedavg", "attack", Spread(0.9), Spread(0.2)],
        ["fedprox", "attack", Spread(0.1), Spread(0.3)],
    ]
    columns = [Column("method", "method"), Column("figure", "figure")]
    columns += [Column(name, name, "percent", 1) for name in ("a", "b")]
    table = Table("t", "T", "N", columns, rows, ("figure",), frozenset({(1, "b"), (3, "b"), (4, "b")}))
    body = as_latex(table).partition("\\midrule\n")[2].splitlines()
    assert body[:8] == [
        r"FedAvg & id & 50.0 &  \\",
        r"FedDG-GA, mu 2 & id & \textbf{70.0}$_{\pm 1.0}$ & \underline{20.0} \\",
        r"\midrule",
        # Equal as displayed: none.
        r"FedAvg & ood & 42.0 & \textbf{31.0} \\",
        r"hFedF (unfinished) & ood & 42.0 & \underline{30.0} \\",
        r"\midrule",
        # Of an attack's success less is better, and the best is not marked twice.
        r"FedAvg & attack & 90.0 & \textbf{20.0} \\",
        r"FedProx & attack & \textbf{10.0} & 30.0 \\",
    ]
    without = table._replace(columns=[column._replace(sense=0) for column in columns], near=frozenset())
    assert not any(word in as_latex(without) for word in ("textbf", "underline", "Bold", "Underlined"))


def test_each_column_is_compared_in_its_own_sense_within_a_domain(tmp_path: Path) -> None:
    tables = {table.name: table for table in make_tables(two_methods(tmp_path))}
    results = as_latex(tables["results"]).partition("\\midrule\n")[2].splitlines()
    for key, best in (("ood_accuracy", max), ("ece", min)):
        each = [over_seeds(tmp_path / method, key).mean() for method in ("fedavg", "hfedf")]
        assert rf"\textbf{{{100 * best(each):.1f}}}" in results[each.index(best(each))]
        assert f" {100 * each[1 - each.index(best(each))]:.1f}$" in results[1 - each.index(best(each))]
    # Neither seeds, rounds nor bytes are figures.
    assert all(line.endswith(r"& 18.0 & 6.0 & 12 \\") for line in results[:2])
    losses = [over_seeds(tmp_path / method, "ood_log_loss").mean() for method in ("fedavg", "hfedf")]
    assert rf"\textbf{{{min(losses):.3f}}}" in as_latex(tables["figures"])
    assert rf"\textbf{{{max(losses):.3f}}}" not in as_latex(tables["figures"])


def test_what_is_not_told_apart_from_the_best_is_underlined(tmp_path: Path) -> None:
    for method in ("fedavg", "fedprox", "hfedf"):
        for name, clients in (("all", 0), ("few", 3)):
            write_run(tmp_path / f"{method}-{name}", method, data={"clients": clients})
    tables = {table.name: table for table in make_tables(read_runs([tmp_path]))}
    verdicts = {(row["figure"], row["method"]): row["verdict"] for row in rows_of(tables["ranking"])}
    table = tables["targets"]
    undecided = {(row[1], row[0]) for i, row in enumerate(table.rows) if (i, "mean") in table.near}
    compared = {(row[1], row[0]) for row in table.rows}
    assert undecided == {key for key, verdict in verdicts.items() if verdict == "undecided" and key in compared}
    assert undecided
    figures = [row[1] for row in table.rows]
    assert figures == sorted(figures, key=list(dict.fromkeys(figures)).index)
    assert as_latex(table).count("\\midrule") == len(set(figures))


def test_domains_and_fairness(tmp_path: Path) -> None:
    tables = {table.name: table for table in make_tables(two_methods(tmp_path))}
    for method, domains, fairness in zip(
        ("fedavg", "hfedf"), rows_of(tables["domains"]), rows_of(tables["fairness"]), strict=True
    ):
        each = np.stack([over_seeds(tmp_path / method, "per_domain_accuracy", name) for name in DOMAINS])
        clients = np.stack([over_seeds(tmp_path / method, "client_accuracy", str(client)) for client in range(4)])
        np.testing.assert_allclose([float(domains[name]) for name in DOMAINS], each.mean(axis=1))
        wanted = [each.std(axis=0), each.min(axis=0), clients.std(axis=0), clients.min(axis=0)]
        got = [float(fairness[name]) for name in ("domain_std", "domain_min", "client_std", "client_min")]
        np.testing.assert_allclose(got, [values.mean() for values in wanted])


def test_communication_is_that_until_an_accuracy_is_reached(tmp_path: Path) -> None:
    runs = two_methods(tmp_path)
    (table,) = [table for table in make_tables(runs, [0.3, 0.55, 0.999]) if table.name == "communication"]
    for method, row in zip(("fedavg", "hfedf"), rows_of(table), strict=True):
        for accuracy, percent in ((0.3, "30"), (0.55, "55")):
            rounds = [
                min(
                    line["round"]
                    for line in lines_of(tmp_path / method, seed)
                    if line.get("ood_accuracy", 0) >= accuracy
                )
                for seed in (0, 1)
            ]
            assert float(row[f"rounds_to_{percent}"]) == np.mean(rounds)
            assert float(row[f"bytes_to_{percent}"]) == 4e6 * np.mean(rounds)
        # Nobody comes to this: no column, and the table says so.
        assert "rounds_to_99.9" not in row
    assert "No run reached 99.9 % in all seeds." in table.note


def test_a_method_is_averaged_over_unseen_domains(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "fedavg")
    write_run(tmp_path / "b", "fedavg", batch_size=8, data={"domains_per_client": 2})
    write_run(tmp_path / "c", "hfedf")
    runs = read_runs([tmp_path])
    (table,) = [
        table for table in make_tables([run._replace(series=run.method) for run in runs]) if table.name == "targets"
    ]
    rows = [row for row in rows_of(table) if row["figure"] == "ood"]
    panels = [run.panel for run in runs[:2]]
    assert [row["method"] for row in rows] == ["fedavg", "hfedf"]
    both = [over_seeds(tmp_path / name, "ood_accuracy").mean() for name in "ab"]
    np.testing.assert_allclose([float(rows[0][key]) for key in (*panels, "mean")], [*both, np.mean(both)])
    assert rows[1][panels[1]] == rows[1]["mean"] == ""


def test_a_run_on_all_domains_takes_no_methods_mean_away(tmp_path: Path) -> None:
    for name, more in (("a", {}), ("b", {"domains_per_client": 2})):
        for method in ("fedavg", "hfedf"):
            write_run(tmp_path / f"{method}-{name}", method, data=more)
    runs = [run._replace(series=run.method) for run in read_runs([tmp_path])]
    (alone,) = [table for table in make_tables(runs) if table.name == "targets"]
    trained = runs[0]._replace(panel=EVERY_DOMAIN)
    (beside,) = [table for table in make_tables([*runs, trained]) if table.name == "targets"]
    means = {(row["method"], row["figure"]): row["mean"] for row in rows_of(alone)}
    assert all(means.values())
    assert {(row["method"], row["figure"]): row["mean"] for row in rows_of(beside)} == means


def test_probes(tmp_path: Path) -> None:
    (table,) = [table for table in make_tables(two_methods(tmp_path)) if table.name == "probes"]
    for method, row in zip(("fedavg", "hfedf"), rows_of(table), strict=True):
        for percent in ("10", "30"):
            wanted = over_seeds(tmp_path / method, "probe_by_percent", percent).mean()
            assert float(row[f"labels_{percent}"]) == pytest.approx(wanted)


def test_a_single_seed_has_no_deviation(tmp_path: Path) -> None:
    write_run(tmp_path / "run", seeds=(4,))
    (results, *_) = make_tables(read_runs([tmp_path]))
    assert "±" not in as_markdown(results).splitlines()[-1]
    assert rows_of(results)[0]["ood_accuracy_std"] == ""


def test_words_survive_every_format() -> None:
    word = 'a,b|c_"d" & 50 % #1 \\ {x}'
    table = Table("t", "T", "N", [Column("k", "k"), Column("v", "v", "percent")], [[word, Spread(0.5)]])
    assert rows_of(table)[0]["k"] == word
    assert as_markdown(table).splitlines()[-1] == r'| a,b\|c\_"d" &amp; 50 % #1 \\ {x} | 50.0 |'
    row = as_latex(table).partition("\\midrule\n")[2].splitlines()[0]
    assert row == 'a,b\\textbar{}c\\_"d" \\& 50 \\% \\#1 \\textbackslash{} \\{x\\} & 50.0 \\\\'


def test_runs_without_figures_have_a_table_of_results_alone(tmp_path: Path) -> None:
    write_run(tmp_path / "run", done=1)
    assert [table.name for table in make_tables(read_runs([tmp_path]))] == ["results"]


def test_runs_that_predict_numbers_are_compared_by_their_errors(tmp_path: Path) -> None:
    for method in ("fedavg", "hfedf"):
        for name, clients in (("all", 0), ("few", 3)):
            write_run(tmp_path / f"{method}-{name}", method, data={"clients": clients})
    numbers = ("ood_rmse", "id_rmse", "ood_r2", "per_domain_rmse", "worst_domain_rmse")
    runs = [
        run._replace(
            folders=[
                fold._replace(
                    seeds=[
                        seed._replace(figures={key: one for key, one in seed.figures.items() if key in numbers})
                        for seed in fold.seeds
                    ]
                )
                for fold in run.folders
            ]
        )
        for run in read_runs([tmp_path])
    ]
    tables = {table.name: table for table in make_tables(runs)}
    assert set(tables) == {
        *("numbers", "numbers_ranking", "numbers_targets", "numbers_ranking_by_target", "results", "settings")
    }
    assert all("ercent" not in table.note and "points" not in table.note for table in tables.values())
    means = {
        method: np.mean([over_seeds(tmp_path / f"{method}-{name}", "ood_rmse").mean() for name in ("all", "few")])
        for method in ("fedavg", "hfedf")
    }
    ranked = [row for row in rows_of(tables["numbers_ranking"]) if row["figure"] == "ood RMSE"]
    assert [row["method"] for row in ranked] == sorted(means, key=lambda name: means[name])
    assert rows_of(tables["numbers_ranking"])[0]["figure"] == "ood RMSE"
    assert float(ranked[1]["behind"]) == pytest.approx(min(means.values()) - max(means.values()))
    assert {row["figure"] for row in rows_of(tables["numbers_ranking_by_target"])} == {"ood RMSE"}
    # Errors of 1e-4 are no zeros.
    assert all(f"| {mean:.4g} " in as_markdown(tables["numbers_targets"]) for mean in means.values())
    assert rf"\textbf{{{min(means.values()):.4g}}}" in as_latex(tables["numbers_targets"])
    assert "0.000 " not in as_markdown(tables["numbers"])


def test_an_interval_has_columns_of_its_own(tmp_path: Path) -> None:
    write_run(tmp_path / "run", seeds=(4,))
    (table,) = [table for table in make_tables(read_runs([tmp_path])) if table.name == "figures_by_domain"]
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    (row,) = rows_of(table)
    latex = as_latex(table)
    for domain in DOMAINS:
        value, (low, high) = (line[f"per_domain_auroc{end}"][domain] for end in ("", "_interval"))
        assert [float(row[f"{domain}{end}"]) for end in ("", "_low", "_high")] == [value, low, high]
        words = f"{value:.3f} ({low:.3f} to {high:.3f})"
        assert words in as_markdown(table)
        assert words in latex
    assert r"\begin{tabular}{@{}lllrrrr@{}}" in latex
