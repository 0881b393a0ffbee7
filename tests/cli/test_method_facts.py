"""The facts by which docs/choosing.md compares methods are those of the code."""

import re

import pytest

from fdgjax.cli.method_facts import Facts, comes_out, experiment_of, facts, facts_table
from fdgjax.cli.methods import main
from fdgjax.methods import METHODS
from tests.docs.pages import ROOT, sections

PAGE = sections(ROOT / "docs" / "choosing.md")


def names(text: str) -> set[str]:
    """The methods in a text."""
    return set(re.findall(r"`(\w+)`", text)) & set(METHODS)


@pytest.mark.slow
def test_the_table_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    main(["fdgjax methods", "hfedf", "--facts"])
    head, rule, row = capsys.readouterr().out.splitlines()
    lines = PAGE["What the code says"].splitlines()
    assert f"{head}\n{rule}\n" in PAGE["What the code says"]
    assert row in lines


def test_every_method_has_its_row_and_its_labels() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE["What the code says"], re.MULTILINE)
    assert rows == [(name, METHODS[name].labels) for name in sorted(METHODS)]


def test_a_method_is_measured_or_said_not_to_be() -> None:
    measured, _, rest = PAGE["What was measured"].partition("### Not measured")
    unmeasured = re.search(r"^- Accuracy of .*?\n(?=- )", rest, re.MULTILINE | re.DOTALL)
    assert unmeasured
    assert names(measured) | names(unmeasured[0]) == set(METHODS)
    assert not names(measured) & names(unmeasured[0])


@pytest.mark.slow
def test_scaffold_sends_twice_as_much_as_fedavg() -> None:
    averaged, controlled = facts([METHODS["fedavg"], METHODS["scaffold"]])
    assert (averaged.up, averaged.down, averaged.kept) == (1, 1, 0)
    assert (controlled.up, controlled.down) == pytest.approx((2, 2), abs=0.01)
    assert 0.9 < controlled.kept <= 1


@pytest.mark.slow
def test_what_comes_out_is_by_the_methods_entry() -> None:
    local = experiment_of("local")
    assert comes_out(METHODS["local"], local) == "a model for each client"
    assert comes_out(METHODS["fedsimclr"], local) == "an encoder"
    assert comes_out(METHODS["fedavg"], experiment_of("fedavg")) == "one model"


def test_a_pooled_method_has_no_bytes_of_models() -> None:
    row = Facts("central", "clients", "one model", False, None, None, 0.0)
    assert list(facts_table([row]))[-1] == "| `central` | clients | one model |  | - | - | 0.00 |"
