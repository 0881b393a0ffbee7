"""The help explains every key: its value, what it means, and what it may be."""

import dataclasses
from typing import Any

import pytest

from fdgjax.config import Config
from fdgjax.config.help import entries, meanings, usage
from fdgjax.config.make import SECTIONS
from fdgjax.methods import METHODS

KINDS = {kind.__name__: kind for kind in (Config, *SECTIONS.values(), *(entry.hyper for entry in METHODS.values()))}
SECTION_NAMES = {*SECTIONS, "method"}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_key_has_a_meaning(kind: type[Any]) -> None:
    assert {field.name for field in dataclasses.fields(kind) if not meanings(kind)[field.name]} == set()


def test_help_has_each_key_with_its_value_meaning_and_bounds() -> None:
    text = usage(["fdgjax train", "--config", "hfedf"])
    flat = " ".join(text.split())
    assert "--config.data.target=r45 the unseen domain ('' for the first" in flat
    assert "--config.method.ema=0.95 a, the weight of the new state" in flat
    assert "A number from 0 to 1; search: 0.75, 0.85, 0.95 (hFedF v2, Table 10)." in flat
    assert "--config.client_axis=auto" in flat
    assert "One of: auto, chunk, map, vmap." in flat
    assert "--config.data.image_size=0 pixels a side (0 for the data set's own). At least 0 and at most 4096." in flat
    assert max(map(len, text.splitlines())) <= 120


def test_without_a_config_help_says_where_to_look() -> None:
    assert "fdgjax methods" in usage(["fdgjax train"])


def test_entries_of_a_docstring() -> None:
    text = "Title: no field.\n\none: first. two, three: both\n  of them: and more. other: no field.\n\nAn end."
    assert entries(text, ["one", "two", "three"]) == {
        "one": "first.",
        "two": "both of them: and more. other: no field.",
        "three": "both of them: and more. other: no field.",
    }
    assert entries("Nothing.", ["one"]) == {}
