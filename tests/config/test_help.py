"""The help explains every key: its value, what it means, and what it may be."""

import dataclasses
import re
from typing import Any

import pytest

from fdgjax.config import Config, make_config
from fdgjax.config.command_line import leaves
from fdgjax.config.help import GROUPS, asks_for_help, entries, keys_of, meanings, usage
from fdgjax.config.make import SECTIONS
from fdgjax.methods import METHODS
from fdgjax.utils.errors import UserError

ALL: tuple[type[Any], ...] = (Config, *SECTIONS.values(), *(entry.hyper for entry in METHODS.values()))
KINDS = {kind.__name__: kind for kind in ALL}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_key_has_a_meaning(kind: type[Any]) -> None:
    assert {field.name for field in dataclasses.fields(kind) if not meanings(kind)[field.name]} == set()


def test_a_key_of_ones_own_has_no_meaning_of_a_word_in_the_texts_of_other_keys() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(METHODS["fedavg"].hyper):  # type: ignore[misc]
        """FedAvg's. momentum: of mine, by `rate`."""

        penalty: float = 0.0
        rate: float = 0.0
        momentum: float = 0.0

    found = meanings(Mine)
    assert found["penalty"] == ""
    assert found["momentum"] == found["rate"] == "of mine, by `rate`."
    assert found["client_weight_decay"].startswith("added to the gradient (an L2 penalty)")


def test_help_has_each_key_with_its_value_meaning_and_bounds() -> None:
    text = usage(["fdgjax train", "--config", "hfedf"])
    flat = " ".join(text.split())
    assert "--config.data.target=r45 the unseen domain ('' for the first" in flat
    assert "--config.method.ema=0.95 a, the weight of the new state" in flat
    assert "A number from 0 to 1; search: 0.75, 0.85, 0.95 (hFedF v2, Table 10)." in flat
    assert "--config.client_axis=auto" in flat
    assert "One of: auto, chunk, map, vmap." in flat
    assert "--config.data.image_size=0 pixels a side (0 for the data set's own). At least 0 and at most 4096." in flat
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("method", METHODS)
def test_every_key_is_in_one_group_and_in_order(method: str) -> None:
    every = [key for group in GROUPS for key in keys_of(group, method)]
    assert sorted(every) == sorted(leaves(make_config(method)))
    text = usage(["fdgjax train", f"--config={method}"])
    assert re.findall(r"^  --config\.([\w.]+)=", text, re.MULTILINE) == every
    assert re.findall(r"^(\w+): ", text, re.MULTILINE) == list(GROUPS)


def test_one_group_alone() -> None:
    text = usage(["fdgjax train", "--config=fedprox"], "method")
    first, mu, *_ = text.splitlines()
    assert first.startswith("method: ")
    assert mu.startswith("  --config.method.mu="), "a method's own keys come before FedAvg's"
    assert "--config.rounds" not in text
    with pytest.raises(UserError, match=r"unknown group of keys 'dta'; expected one of: data, .*did you mean 'data'"):
        usage(["fdgjax train", "--config=fedprox"], "dta")


@pytest.mark.slow
def test_help_names_no_file_of_a_checkout() -> None:
    for method in METHODS:
        assert not re.search(r"docs/|configs/|README|Makefile", usage(["fdgjax train", f"--config={method}"]))


@pytest.mark.parametrize(("word", "asks"), [("--help", True), ("-h", True), ("--help=data", True), ("--helper", False)])
def test_what_asks_for_help(word: str, asks: bool) -> None:
    assert asks_for_help(word) == asks


def test_without_a_config_help_says_where_to_look() -> None:
    said = usage(["fdgjax train"])
    assert "fdgjax methods" in said
    assert all(f"--help={group}" in said for group in GROUPS)


def test_entries_of_a_docstring() -> None:
    text = "Title: no field.\n\none: first. two, three: both\n  of them: and more. other: no field.\n\nAn end."
    assert entries(text, ["one", "two", "three"]) == {
        "one": "first.",
        "two": "both of them: and more. other: no field.",
        "three": "both of them: and more. other: no field.",
    }
    assert entries("Nothing.", ["one"]) == {}
