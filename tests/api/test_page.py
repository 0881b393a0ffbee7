"""The examples of docs/python.md, in their order, as a reader would run them."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, sections

PAGE = ROOT / "docs" / "python.md"


def blocks(section: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", sections(PAGE)[section], re.DOTALL)


@pytest.mark.slow
def test_every_example_runs(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    names: dict = {"__name__": "page"}
    for section in sections(PAGE):
        for code in blocks(section):
            exec(compile(code, f"docs/python.md, {section}", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert "False 2" in printed
    assert "2 True True" in printed


def test_every_section_has_an_example() -> None:
    assert all(blocks(section) for section in sections(PAGE))
