"""Every file that a page links has a place on the site, and every page of docs a place in its navigation."""

import re
from pathlib import Path
from posixpath import normpath

import pytest

from fdgjax.methods import METHODS
from tests.docs.pages import PAGES, RESULTS, ROOT
from website.links import LINK, linked, rewritten, slug
from website.pages import TEXTS, made, modules, place, settings

MADE = made()
TEXTS_OF_SITE = {
    **{path: ROOT / path for path in TEXTS},
    **{f"docs/{it.name}": it for it in PAGES if it.parent.name == "docs"},
    **{it.relative_to(ROOT).as_posix(): it for it in RESULTS},
}


@pytest.mark.parametrize("path", TEXTS_OF_SITE)
def test_links_of_the_repository_lead_to_pages_of_the_site(path: str) -> None:
    text, page = TEXTS_OF_SITE[path].read_text(), place(path)
    assert len(LINK.findall(text)) == len(list(linked(text, path)))
    for there, _ in LINK.findall(rewritten(text, path, page, place)):
        target = normpath(f"{Path(page).parent}/{there}")
        assert target in MADE or (ROOT / "docs" / target).is_file(), there


@pytest.mark.parametrize(
    ("path", "there"),
    {
        "README.md": "index.md",
        "docs/data.md": "data.md",
        "fdgjax/methods": "methods.md",
        "fdgjax/methods/hfedf.py": "methods/labelled-clients-personalised-models.md#fdgjax.methods.hfedf",
        "fdgjax/methods/parts/extend.py": "reference/methods.parts.md#fdgjax.methods.parts.extend",
        "fdgjax/aggregation": "reference/aggregation.md#fdgjax.aggregation",
        "launch/slurm.sh": "source/launch/slurm.sh.md",
        "benchmarks/results": "source/benchmarks/results.md",
        "benchmarks/results/uap/README.md": "results/uap.md",
        "notebooks/quickstart.ipynb": "notebooks/quickstart.md",
    }.items(),
)
def test_a_file_has_its_place(path: str, there: str) -> None:
    assert place(path) == there


def test_a_link_keeps_its_anchor_and_addresses_of_elsewhere_stay() -> None:
    text = "[a](running.md#keys) [b](https://example.org/a.md) [c](#here) [d](../fdgjax/contract.py)"
    expected = (
        "[a](../running.md#keys) [b](https://example.org/a.md) [c](#here) [d](../reference/contract.md#fdgjax.contract)"
    )
    assert rewritten(text, "docs/x.md", "sub/x.md", place) == expected


def test_every_method_is_on_the_page_of_its_setting() -> None:
    assert set(settings()) == set(METHODS)
    for name, setting in settings().items():
        assert f"\n::: fdgjax.methods.{name}\n" in MADE[f"methods/{slug(setting)}.md"][1] + "\n"


def test_the_reference_has_modules_that_exist() -> None:
    listed = [module for page in MADE if page.startswith("reference/") for module in modules(Path(page).stem)]
    assert len(listed) == len(set(listed)) > 100
    for module in listed:
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), module


def test_every_page_of_docs_has_its_place_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\nhooks:")[0]
    listed = re.findall(r"(\w+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(["index.md", *(page.name for page in PAGES if page.parent.name == "docs")])


@pytest.mark.parametrize("path", TEXTS_OF_SITE)
def test_a_list_follows_a_blank_line(path: str) -> None:
    """Markdown of the site takes the items for a paragraph's lines otherwise."""
    text = re.sub(r"^```.*?^```", "", TEXTS_OF_SITE[path].read_text(), flags=re.MULTILINE | re.DOTALL)
    for before, item in re.findall(r"^(.*\S.*)\n(- .*|\d+\. .*|\|.*)$", text, re.MULTILINE):
        assert re.match(r"- |\d+\. |\|| {2,}", before), item
