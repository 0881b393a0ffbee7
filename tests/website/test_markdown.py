"""Docstrings for the site: what `--help` reads as keys are lists there, and nothing else changes."""

import dataclasses
import inspect
import re

import pytest

from fdgjax.config.help import entries
from fdgjax.methods import METHODS
from website.markdown import as_markdown


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_keys_are_a_list(name: str) -> None:
    kind = METHODS[name].hyper
    text = inspect.cleandoc(kind.__doc__ or "")
    fields = [field.name for field in dataclasses.fields(kind)]
    listed = re.findall(r"^- ((?:`\w+`(?:, )?)+): ", as_markdown(text, fields), re.MULTILINE)
    assert [key for keys in listed for key in re.findall(r"`(\w+)`", keys)] == list(entries(text, fields))
    assert re.findall(r"\w+", as_markdown(text, fields)) == re.findall(r"\w+", text)


def test_equations_stay_as_they_are() -> None:
    text = "A rule.\n\n    mu: x <- y\n    a: b\n\nThe end."
    assert as_markdown(text, ["mu", "a"]) == text


def test_arguments_that_share_a_description_have_it_each() -> None:
    text = "A distance.\n\nArgs:\n  x, y: samples,\n    of one width.\n  z: another."
    expected = "Args:\n  x: samples,\n    of one width.\n  y: samples,\n    of one width.\n  z: another.\n"
    assert as_markdown(text, ["x", "y", "z"]) == f"A distance.\n\n{expected}"


def test_a_list_gets_its_blank_line() -> None:
    assert as_markdown("Two things:\n- one\n- two") == "Two things:\n\n- one\n- two"
