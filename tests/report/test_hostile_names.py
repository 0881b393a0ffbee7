"""Whatever methods, data sets, domains, classes and folders are called, every figure, table and page has it as text."""

import csv
import io
import json
import os
import re
import shlex
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fdgjax.cli.report import main
from fdgjax.report.escaping import FORMULA, for_csv, for_figure, for_latex, for_markdown
from fdgjax.report.folders import read_run_folder
from fdgjax.report.gallery import FIGURES, TABLES, make_tables
from fdgjax.report.making import PAGE, report
from fdgjax.report.reading import Run, read_runs
from fdgjax.report.reproduction import command_of
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.errors import printable
from tests.report.folders import look, write_afterwards, write_run
from tests.report.test_report import OF_SEVERAL_DOMAINS, Page

HOSTILE = (
    r"$\frac$",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "%s",
    "_a_ b_c",
    "R&D &amp;",
    "line\nbreak\r\nand\ttab",
    "\u202egpj.exe\u2066",
    "byte \udcff",
    '" onload="x" id="figure-radar" href="#b',
    "font: 'x",
    "--><b>]]>",
    "\x00\x07\x1b[31m",
    "{{ 7 * 7 }} {% raw %}",
    "`code` **bold** [x](javascript:y) ~~s~~",
    "\\input{/etc/passwd} \\",
    "[1em] *",
    "#0a0b0c #c0de01 url(#x",
    "漢字 🙂",
    "long " * 60,
)
"""Names of everything, one after another."""

DOMAINS = ("r0", "r15", "r30", "r45")


def renamed(content: Any, names: dict[str, str]) -> Any:
    """The content with some words replaced, in keys as well."""
    if isinstance(content, dict):
        return {renamed(key, names): renamed(value, names) for key, value in content.items()}
    if isinstance(content, list):
        return [renamed(one, names) for one in content]
    if isinstance(content, str) and content.startswith("coefficients/weights"):
        return content.replace("weights", names["weights"].replace("/", "|"))
    return names.get(content, content) if isinstance(content, str) else content


def spoilt(path: Path, method: str, name: str, domains: Sequence[str]) -> Path:
    """A run whose method, data set, layers and versions have another name, with the domains besides its own; the first
    of them are those of its pairs."""
    write_run(path, method)
    write_afterwards(path)
    names = dict(zip(DOMAINS, domains, strict=False))
    names |= {"rotated_digits": name, method: f"{name} {method}", "1.2.3": name, "features": name, "weights": name}

    def with_names(content: Any) -> Any:
        content = renamed(content, names)
        if "per_domain_accuracy" in content:
            content["per_domain_accuracy"] |= dict.fromkeys(domains, 0.5)
        return content

    for file in path.rglob("*.json"):
        write_checked_json(file, with_names(read_checked_json(file)))
    for file in path.rglob("*.jsonl"):
        lines = [with_names(json.loads(line)) for line in file.read_text().splitlines()]
        file.write_text("\n".join(map(json.dumps, lines)))
    return path


def hostile_runs(folder: Path) -> list[Run]:
    """Two methods on one data set, every name of whose domains, classes and layers is hostile."""
    for method in ("fedavg", "hfedf"):
        spoilt(folder / method, method, HOSTILE[0], HOSTILE)
    seen = look()
    assert seen.features is not None
    features = seen.features._replace(class_names=HOSTILE, domain_names=HOSTILE)
    seen = seen._replace(features=features, divergence=dict.fromkeys(HOSTILE[:16], 0.1))
    return [run._replace(trained_state=seen, missed=HOSTILE[0]) for run in read_runs([folder])]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Run], dict[str, str]]:
    """Runs and the files of their report, without a warning."""
    runs = hostile_runs(tmp_path_factory.mktemp("runs"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        files = report(runs, f"command {HOSTILE[0]}", [0.5])
    return runs, {name: str(text) for name, text in files.items()}


Made = tuple[list[Run], dict[str, str]]


@pytest.mark.slow
def test_the_page_is_whole_and_shows_names_as_text(made: Made) -> None:
    _, files = made
    page = Page(files[PAGE])
    assert not {"script", "link", "iframe", "img", "base", "b", "code", "strong", "s"} & page.tags
    assert not any(name.startswith("on") for name in page.attributes)
    assert all(reference.startswith("#") and reference[1:] in page.ids for reference in page.references)
    assert len(set(page.ids)) == len(page.ids)
    assert {f"figure-{name}" for name in FIGURES} <= set(page.ids)
    # One domain, and no setting that differs.
    without = {f"table-{name}" for name in (*OF_SEVERAL_DOMAINS, "settings")}
    assert {f"table-{name}" for name in TABLES} - set(page.ids) == without
    text = "".join(page.words)
    assert all(printable(name) in text for name in HOSTILE)
    assert files[PAGE].replace("\n", "").isprintable()
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", files[PAGE])


@pytest.mark.slow
def test_every_figure_draws_names_as_text(made: Made) -> None:
    _, files = made
    plots = re.findall(r'<div class="plot"[^>]*>(<svg.*?</svg>)\s*</div>', files[PAGE], re.DOTALL)
    assert len(plots) == files[PAGE].count('<div class="plot"')
    drawn: set[str] = set()
    for plot in plots:
        tree = ElementTree.fromstring(plot)
        assert {element.tag.rpartition("}")[2] for element in tree.iter()} <= {
            *("svg", "g", "path", "defs", "use", "text", "tspan", "clipPath", "rect")
        }
        drawn |= {" ".join("".join(each.itertext()).split()) for each in tree.iter() if each.tag.endswith("text")}
    for name in HOSTILE:
        for longest in (18, 24, 40):  # of the circle, the bars and the layers
            assert " ".join(for_figure(name, longest).split()) in drawn or (longest == 40 and name not in HOSTILE[:16])


def is_number(cell: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", cell) is not None


@pytest.mark.slow
def test_no_cell_of_a_csv_is_a_formula(made: Made) -> None:
    runs, files = made
    for table in make_tables(runs, [0.5]):
        rows = list(csv.reader(io.StringIO(files[f"{table.name}.csv"])))
        assert len(rows) == 1 + len(table.rows)
        assert len({len(row) for row in rows}) == 1
        for cell in (cell for row in rows for cell in row):
            assert cell.isprintable()
            assert not cell.lstrip().startswith(FORMULA) or is_number(cell)
    header = next(csv.reader(io.StringIO(files["domains.csv"])))
    assert {for_csv(name) for name in HOSTILE} <= set(header)


def cells_of(markdown: str) -> Iterator[list[str]]:
    """The text of each row's cells, as a reader of Markdown sees it; markup in a cell is an error."""
    row: list[str] = []
    for token in MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(markdown):
        if token.type == "tr_open":
            row = []
        elif token.type == "inline":
            row.append("".join(map(text_of, token.children or [])))
        elif token.type == "tr_close":
            yield row


def text_of(token: Token) -> str:
    assert token.type in ("text", "text_special"), token
    return token.content


@pytest.mark.slow
def test_markdown_shows_names_as_text(made: Made) -> None:
    _, files = made
    rows = list(cells_of(files["report.md"].partition("## Accuracy on each domain")[2].partition("## ")[0]))
    assert set(rows[0][2:]) == {printable(name).strip() for name in HOSTILE}
    assert {len(row) for row in rows} == {2 + len(HOSTILE)}
    assert len(rows) == 3


def plain_of(latex: str) -> str:
    """The words of a LaTeX text that has no commands but for signs; anything else is an error."""
    words = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textasciigrave": "`"}
    words |= {"textless": "<", "textgreater": ">", "textbar": "|"}
    latex = latex.replace(r"$\pm$", "±")
    pieces = re.findall(r"\\(text\w+)\{\}|\\([&%$#_{}])|\{([\[\]*])\}|([^\\{}&%$#_~^`\[\]*<>|])", latex)
    text = "".join(words[command] if command else "".join(rest) for command, *rest in pieces)
    assert for_latex(text) == latex.replace("±", r"$\pm$")
    return text


def test_latex_sets_names_as_text(made: Made) -> None:
    _, files = made
    head, row, *_ = re.findall(r"^(.*) \\\\$", files["domains.tex"], re.MULTILINE)
    assert {plain_of(cell) for cell in head.split(" & ")[2:]} == set(map(printable, HOSTILE))
    assert len(row.split(" & ")) == 2 + len(HOSTILE)
    assert files["domains.tex"].count("\n") == 14


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_the_same_words_in_every_format(name: str) -> None:
    assert plain_of(for_latex(name)) == printable(name)
    ((cell,), *_) = cells_of(f"| {for_markdown(name)} |\n|---|\n")
    assert cell == printable(name).strip()
    (read,) = csv.reader(io.StringIO(f'"{for_csv(name).replace(chr(34), chr(34) * 2)}"'))
    assert read[0].removeprefix("'") == printable(name)
    assert for_figure(name).rstrip("…") in printable(name)


@pytest.mark.parametrize(
    ("words", "cell"),
    [
        *((number, number) for number in ("-1", "+0.5", "-1e-3", "-inf", "0.1", "")),
        *((f"{sign}1+1", f"'{sign}1+1") for sign in FORMULA),
        (" =1", "' =1"),
        ("\t=1", r"\t=1"),
        ("a=b", "a=b"),
    ],
)
def test_numbers_stay_numbers_in_a_csv(words: str, cell: str) -> None:
    assert for_csv(words) == cell


@pytest.mark.slow
def test_the_command_writes_a_report_of_hostile_folders(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for i, name in enumerate(HOSTILE[5:9]):
        folder = tmp_path / "runs" / printable(name).replace("/", "|")[:100]
        spoilt(folder, "fedavg", HOSTILE[i - 1], (name, "r15", "r30", HOSTILE[i - 2]))
        raw = os.fsencode(name.replace("/", "|"))
        os.rename(folder, os.fsencode(tmp_path / "runs") + b"/" + raw)
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--no-states"]) == 0
    said = capfd.readouterr()
    assert said.out.splitlines() == [f"4 experiments in {tmp_path / 'out' / PAGE}"]
    assert said.err == ""
    Page((tmp_path / "out" / PAGE).read_text(encoding="utf-8"))


def test_the_name_of_a_method_is_no_path_to_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    path = write_run(tmp_path / "run")
    write_checked_json(path / "config.json", renamed(read_checked_json(path / "config.json"), {"fedavg": "../evil"}))
    monkeypatch.chdir(tmp_path)
    assert "--config=../evil:rotated_digits" in command_of(read_run_folder(path))


def test_a_data_set_of_any_name_has_a_command(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    content = read_checked_json(path / "config.json")
    for name in HOSTILE:
        write_checked_json(path / "config.json", renamed(content, {"rotated_digits": name}))
        assert f"--config=fedavg:{name}" in shlex.split(command_of(read_run_folder(path)))
