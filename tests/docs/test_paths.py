"""What the documentation points at exists: files, links, headings, modules, keys and commands."""

import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest

from fdgjax.cli.data import parser
from fdgjax.config.command_line import parse
from fdgjax.config.help import asks_for_help
from fdgjax.data.download.releases import RELEASES
from fdgjax.distributed import split_off
from fdgjax.methods import METHODS
from fdgjax.sweeps.papers import EXPERIMENTS
from tests.docs.pages import PAGES, README, ROOT, commands, text_of

TO_BE_WRITTEN = {"fdgjax/methods/fedmedian.py", "configs/fedmedian.py"}
"""The files of the worked example."""
LEFT_OPEN = ("--help", "...", "--config.KEY=VALUE")
"""Words of a command that stand for others."""


def by_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings have on GitHub."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_files_that_are_named_exist(page: Path) -> None:
    folders = "fdgjax|configs|launch|benchmarks|tests|docs|notebooks"
    named = set(re.findall(rf"(?<![\w/.-])(?:{folders})/[\w/.*-]*\w", text_of(page)))
    patterns = {path.replace("METHOD", "*").replace("NAME", "*") for path in named - TO_BE_WRITTEN}
    assert {path for path in patterns if not list(ROOT.glob(path))} == set()


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if not link.startswith("http"):
            path, _, anchor = link.partition("#")
            to = (page.parent / path).resolve() if path else page
            assert list(to.parent.glob(to.name)), link
            assert not anchor or anchor in anchors(to), link


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_modules_that_are_named_exist(page: Path) -> None:
    for module in set(re.findall(r"\b((?:fdgjax|launch|benchmarks)(?:\.\w+)+)\b", text_of(page))):
        parent, _, last = module.rpartition(".")
        if last not in ("md", "py", "ipynb"):
            found = importlib.import_module(parent)
            assert hasattr(found, last) or importlib.util.find_spec(module), module


def test_every_page_is_reached_from_readme() -> None:
    linked = set(re.findall(r"docs/\w+\.md", README.read_text()))
    assert linked == {f"docs/{page.name}" for page in PAGES if page.parent.name == "docs"}


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_commands_are_experiments(page: Path) -> None:
    """Every run's command of the documentation is read by the command line, with a choice put where one is left."""
    for command in commands(page, "fdgjax train") + commands(page, "python -m fdgjax.main"):
        of_server = "data.server" in command and "data.protocol" not in command
        written = command.replace("METHOD", "uap" if of_server else "fedavg").replace("[:PRESET]", "")
        left = [word for word in written.split() if word not in LEFT_OPEN and not asks_for_help(word)]
        words = [re.sub(r"seed=S$", "seed=1", word) for word in left]
        parse(split_off(["fdgjax.main", *words])[0])


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_data_sets_that_are_fetched_exist(page: Path) -> None:
    for command in commands(page, "fdgjax data"):
        given = parser().parse_args(command.split())
        assert given.name in (None, *RELEASES), command
        assert bool(given.dir) == bool(given.name), command


def test_experiments_that_are_named_exist() -> None:
    named = {command.split()[0] for page in PAGES for command in commands(page, "fdgjax reproduce")}
    assert named - {"NAME"} <= set(EXPERIMENTS)
    assert len(named) > 1


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_hyperparameters_that_are_named_exist(page: Path) -> None:
    known = {field.name for entry in METHODS.values() for field in dataclasses.fields(entry.hyper)}
    assert set(re.findall(r"`(?:--config\.|config\.)?method\.([a-z]\w*)", text_of(page))) <= known
