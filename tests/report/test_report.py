"""The command: a page that stands alone, files beside it, mistakes in one line; and a real run from end to end."""

import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.cli.report import accuracies, main
from fdgjax.config import from_plain
from fdgjax.config.command_line import parse
from fdgjax.report.folders import read_run_folder
from fdgjax.report.gallery import FIGURES, TABLES
from fdgjax.report.making import LISTED, PAGE, report, write
from fdgjax.report.reading import Run
from fdgjax.report.reproduction import command_of
from fdgjax.report.trained_states import MOST_SAMPLES, trained_state
from fdgjax.run.console import Console
from fdgjax.run.runner import run_config
from fdgjax.utils.errors import UserError
from tests.report.folders import two_methods, write_run
from tests.runs import never, perceptron, small

__all__ = ["perceptron"]

OF_SEVERAL_DOMAINS = ("targets", "ranking_by_target", "numbers_targets", "numbers_ranking_by_target")
"""Tables that compare domains."""
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Reads a page: its tags, ids, references and text; an element that is not closed is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "srcset", "action"):
                self.references.append(value or "")


def of_commit(run: Run, commit: str) -> Run:
    """The run made at a commit."""
    return run._replace(folders=[folder._replace(commit=commit) for folder in run.folders])


@pytest.mark.slow
def test_the_page_stands_alone(tmp_path: Path) -> None:
    runs = [of_commit(run, "0123abc") for run in two_methods(tmp_path)]
    source = str(report(runs, "fdgjax report <here>")[PAGE])
    page = Page(source)
    assert not {"script", "link", "iframe", "img", "base"} & page.tags
    assert all(reference.startswith("#") and reference[1:] in page.ids for reference in page.references)
    assert not re.search(r"https?:|@import", source)
    assert len(set(page.ids)) == len(page.ids)
    assert {f"figure-{name}" for name in FIGURES} <= set(page.ids)
    assert {f"table-{name}" for name in TABLES} - set(page.ids) == {
        f"table-{name}" for name in (*OF_SEVERAL_DOMAINS, "settings")
    }
    text = "".join(page.words)
    assert all(word in text for word in ("fdgjax report <here>", "jax 1.2.3, commit 0123abc", str(tmp_path / "hfedf")))
    assert 'name="viewport"' in source
    assert "prefers-color-scheme: dark" in source


@pytest.mark.slow
def test_the_page_lists_what_it_lacks(tmp_path: Path) -> None:
    write_run(tmp_path / "run", done=5)
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--no-states"]) == 0
    text = "".join(Page((tmp_path / "out" / PAGE).read_text()).words)
    assert "5 of 6, unfinished" in text
    before = " ".join(text.partition("Contents")[0].split())
    without_data, without_state = (
        before.partition(f"Left out, since {reason}: ")[2].partition(".")[0].split(", ")
        for reason in ("the runs have no data for it", "no trained state was opened")
    )
    of_state = [FIGURES[name].title for name in ("embeddings", "divergence", "features")]
    assert without_state == of_state
    assert FIGURES["domain_shift"].title in without_data
    assert not {*of_state} & {*without_data}
    assert "--no-states" in before


@pytest.mark.slow
def test_tables_and_drawings_can_be_read_out_and_printed(tmp_path: Path) -> None:
    page = str(report(two_methods(tmp_path), "command", states=False)[PAGE])
    tables = re.findall(r"<table>(.*?)</table>", page, re.DOTALL)
    assert len(tables) > 5
    for table in tables:
        head, _, body = table.partition("</thead>")
        assert re.search(r"<caption>[^<]+</caption>", head)
        assert head.count("<th ") == head.count('<th scope="col"') > 1
        assert body.count("<tr>") == body.count('<th scope="row">') > 0
    assert page.count('role="region" aria-label="') == page.count('class="scroll"')
    plots = re.findall(r'role="img" aria-label="([^"]*)" aria-describedby="([^"]*)"', page)
    assert len(plots) == page.count('class="plot"')
    assert all(f'<figcaption id="{caption}">' in page for _, caption in plots)
    assert any(label.endswith("; fedavg, hfedf") for label, _ in plots)
    assert "@media print" in page


@pytest.mark.slow
def test_files_and_states_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {"name": "folder", "dir": str(tmp_path / "far away")}
    runs = [str(write_run(tmp_path / "runs" / name, name, data=data)) for name in ("fedavg", "hfedf")]
    out = tmp_path / "new/out"
    assert main(["report", *runs, "--out", str(out), "--reach", "50"]) == 0
    names = {path.name for path in out.iterdir()}
    assert {PAGE, "report.md", "results.csv", "results.tex", "communication.csv"} <= names
    text = " ".join("".join(Page((out / PAGE).read_text()).words).split())
    assert text.count("No trained state of") == 2
    assert text.count("far away") >= 2
    assert "rounds_to_50" in (out / "communication.csv").read_text()
    # A report takes the place of an earlier one.
    assert main(["report", runs[0], "--out", str(out), "--no-states"]) == 0
    assert "hfedf" not in (out / PAGE).read_text()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("runs", "more", "said"),
    [
        ("nowhere", [], "which holds no run"),
        ("run", ["--reach", "50,lots"], "--reach got '50,lots'"),
        ("run", ["--reach", "150"], "expected percentages"),
    ],
)
def test_mistakes_are_one_line(
    runs: str, more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run")
    assert main(["report", str(tmp_path / runs), "--out", str(tmp_path / "out"), *more]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert not (tmp_path / "out").exists()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("mine")
    with pytest.raises(UserError, match=r"has results\.csv and no report; expected a new or empty folder"):
        write(tmp_path, {PAGE: "", "results.csv": "theirs"})
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]
    with pytest.raises(UserError, match="which is a file"):
        write(tmp_path / "results.csv", {PAGE: ""})
    assert (tmp_path / "results.csv").read_text() == "mine"


@pytest.mark.parametrize("name", [PAGE, "results.csv"])
def test_a_file_that_no_report_wrote_is_left_alone_beside_a_page(name: str, tmp_path: Path) -> None:
    (tmp_path / PAGE).write_text("mine")
    if name != PAGE:
        (tmp_path / PAGE).unlink()
        write(tmp_path, {PAGE: "theirs"})
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=rf"has (a )?{name} (of its own|and no report)"):
        write(tmp_path, {PAGE: "again", "results.csv": "theirs"})
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.slow
def test_figures_are_files_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs/a")
    write_run(tmp_path / "runs/b", "hfedf")
    words = ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--no-states", "--figures"]
    assert main([*words, "pdf,svg"]) == 0
    page = (tmp_path / "out" / PAGE).read_text()
    panels = set(re.findall(r'id="([a-z_]+(?:-[a-z_][a-z_\d]*)?-?\d*)-figure_1"', page))
    files = {path.name: path.read_bytes() for path in (tmp_path / "out/figures").iterdir()}
    assert set(files) == {f"{panel}.{kind}" for panel in panels for kind in ("pdf", "svg")}
    assert len(panels) > 5
    for name, content in files.items():
        assert content.startswith(b"%PDF" if name.endswith("pdf") else b"<?xml")
        assert b"c0de0" not in content
    curves = files["rounds-id_accuracy-0.svg"].decode()
    assert "#0072b2" in curves
    assert "<!-- FedAvg -->" in curves, "the legend"
    # Neither the page nor a file depends on what was written before.
    assert main([*words, "svg"]) == 0
    assert (tmp_path / "out/figures/rounds-id_accuracy-0.svg").read_text() == curves
    assert main([*words, "gif"]) == 2
    assert "unknown format of --figures 'gif'" in capsys.readouterr().err


def test_a_report_leaves_no_files_of_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path, {PAGE: "", "ranking.csv": "1", "figures/a.svg": "2"})
    (tmp_path / "mine.csv").write_text("mine")
    write(tmp_path, {PAGE: "", "runs.csv": "3"})
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {PAGE, LISTED, "runs.csv", "mine.csv"}
    (tmp_path / "of_others.csv").write_text("theirs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LISTED).write_text(f"../of_others.csv\n{tmp_path / 'mine.csv'}\n")
    write(tmp_path / "out", {PAGE: ""})
    assert all((tmp_path / name).exists() for name in ("of_others.csv", "mine.csv")), "outside of the report"


def test_accuracies_are_read_as_percent() -> None:
    assert accuracies("") == []
    np.testing.assert_allclose(accuracies("50,72.5"), [0.5, 0.725])


def test_the_command_makes_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: Any = {"data": {"clients": 4}, "probe": {"percent": "5,50"}, "method": {"client_learning_rate": 0.25}}
    path = write_run(tmp_path / "a run", "fedgala", seeds=(3, 4), **changes)
    folder = read_run_folder(path)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command_of(folder))
    assert words[:3] == ["fdgjax", "train", "--config=fedgala:rotated_digits"]
    assert parse(words[1:]) == (from_plain(folder.config), path)
    assert len(words) < 15
    files = shlex.split(command_of(folder._replace(registering=["/x/mine.py"])))
    assert files == ["fdgjax", "--with", "/x/mine.py", *words[1:]]


@pytest.mark.slow
def test_nothing_is_imported_before_it_is_needed() -> None:
    code = "import sys, fdgjax.cli.report; sys.exit(bool({'matplotlib', 'jinja2', 'sklearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("perceptron")
def test_a_real_run_from_end_to_end(cache: Path, tmp_path: Path) -> None:
    config = small(cache, "hfedf", rounds=2, seeds=2)
    summary = run_config(config, tmp_path / "run", Console(), never())
    look = trained_state(tmp_path / "run")
    assert look.round == 2
    assert look.embeddings is not None
    assert look.embeddings.shape == (5, 2)
    assert set(look.divergence) == {"linear_1", "linear_2"}
    assert look.features is not None
    assert look.features.values.shape[1] == 16
    assert 100 < len(look.features.values) <= MOST_SAMPLES
    assert set(look.features.domains) == set(range(6))
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    page = Page((tmp_path / "out" / PAGE).read_text())
    absent = {"discard_rate", "probe_by_labels", "probes_again", "domain_shift", "fairness", "radar", "unseen_domains"}
    absent |= {"calibration_by_domain", "figures_by_round", "errors_by_round", "errors_by_domain", "unseen_errors"}
    assert {f"figure-{name}" for name in FIGURES} - set(page.ids) == {f"figure-{name}" for name in absent}
    shown = f"{100 * summary['ood_accuracy']:.1f} ± {100 * summary['std']['ood_accuracy']:.1f}"
    assert shown in page.words
