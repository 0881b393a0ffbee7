"""Pages get their tables between two marks, and those of the methods are what the code gives."""

import pytest

from fdgjax.cli.methods import docstring_of
from fdgjax.methods import METHODS
from fdgjax.report.spelling import spelled
from fdgjax.utils.errors import UserError
from launch.pages import ROOT, with_table
from launch.registries import counted, main


def test_a_page_without_a_place_is_refused() -> None:
    begin, end = "<!-- a: by python -m launch.some -->", "<!-- end of a -->"
    page = with_table(f"x{begin}old{end}y", "launch.some", "a", lambda _: "new\n")
    assert page == f"x{begin}\n\nnew\n\n{end}y"
    for page in (begin, end, f"{end}{begin}"):
        with pytest.raises(UserError, match="expected both, once"):
            with_table(page, "launch.some", "a", str)


@pytest.mark.slow
def test_the_pages_lists_of_methods_are_what_the_code_gives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["methods", "--check"]) == 0
    monkeypatch.setattr("launch.registries.spelled", str.upper)
    before = (ROOT / "README.md").read_text()
    assert main(["methods", "--check"]) == 2
    assert "run python -m launch.registries" in capsys.readouterr().err
    assert (ROOT / "README.md").read_text() == before


def test_a_methods_title_is_its_name_and_begins_its_files_text() -> None:
    for name, entry in METHODS.items():
        title = spelled(name)
        assert title.casefold().replace("-", "") == name.replace("_", "")
        assert docstring_of(entry).casefold().startswith(title.casefold())


def test_readme_counts_the_methods() -> None:
    assert counted("1 methods on one engine") == f"{len(METHODS)} methods on one engine"
