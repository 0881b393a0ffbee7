"""The site: every page of docs is in its navigation, and its docstrings show what `--help` does."""

import dataclasses
import importlib.util
import inspect
import re
from types import ModuleType

import pytest

from fdgjax.config.help import entries
from fdgjax.methods import METHODS
from tests.docs.pages import PAGES, ROOT


@pytest.fixture(scope="module")
def conf() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conf", ROOT / "docs" / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_has_its_place_in_the_navigation() -> None:
    listed = re.findall(r"^((?:docs|notebooks)/\w+)$", (ROOT / "docs/site/toctree.md").read_text(), re.MULTILINE)
    pages = (page.relative_to(ROOT).with_suffix("").as_posix() for page in PAGES)
    assert sorted(listed) == sorted(page for page in pages if page.startswith(("docs/", "notebooks/")))


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_keys_are_a_list(conf: ModuleType, name: str) -> None:
    kind = METHODS[name].hyper
    fields = [field.name for field in dataclasses.fields(kind)]
    lines = inspect.cleandoc(kind.__doc__ or "").split("\n")
    text = "\n".join(lines)
    conf.on_docstring(None, "class", name, kind, None, lines)
    own = list(inspect.get_annotations(kind))
    listed = re.findall(r"^- ``([\w, ]+)``: ", "\n".join(lines), re.MULTILINE)
    assert [key for keys in listed for key in keys.split(", ")] == [key for key in entries(text, fields) if key in own]
    assert re.findall(r"\w+", "\n".join(lines)) == re.findall(r"\w+", text)


def test_equations_are_literal_and_stay_as_they_are(conf: ModuleType) -> None:
    lines = ["A rule for |u|.", "", "    mu: x <- |y| `z`", "    a: b*", "", "The `end`s."]
    conf.on_docstring(None, "function", "rule", conf.setup, None, lines)
    assert lines == ["A rule for \\|u\\|.", "", "::", "", *lines[4:6], "", "The ``end``\\ s."]
    assert lines[4:6] == ["    mu: x <- |y| `z`", "    a: b*"]


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](running.md#keys)", "[a](running.md#keys)"),
        ("[b](https://example.org/a.md)", "[b](https://example.org/a.md)"),
        ("[c](../configs)", "c"),
        ("[d](../fdgjax/methods/fdse.py)", "[d](/docs/api/fdgjax.methods.fdse.rst)"),
        ("[e](../fdgjax/methods)", "[e](/docs/api/fdgjax.methods.rst)"),
        ("[f](../fdgjax/run/loop.py)", "[f](../fdgjax/run/loop.py)"),
    ],
)
def test_links_to_modules_lead_to_the_reference(
    conf: ModuleType, monkeypatch: pytest.MonkeyPatch, link: str, expected: str
) -> None:
    reference = {"docs/api/fdgjax.methods.fdse.rst", "docs/api/fdgjax.methods.rst"}
    monkeypatch.setattr(conf, "has_page", reference.__contains__)
    content = [link]
    conf.on_source(ModuleType("app"), "docs/x", content)
    assert content == [expected]
