"""The rules of selection, and that nothing looks at the target unless asked for by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.evaluation.selection import SELECTIONS, ledger

FIGURES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8)


def records(figures: list[tuple[float, float]]) -> list[dict]:
    return [{"round": 5 * (i + 1), "id_accuracy": a, "ood_accuracy": b, "ece": 0.0} for i, (a, b) in enumerate(figures)]


@settings(derandomize=True, deadline=None, max_examples=50)
@given(figures=FIGURES, used=st.sampled_from(sorted(SELECTIONS)))
def test_each_rule_chooses_by_what_it_says(figures: list[tuple[float, float]], used: str) -> None:
    rounds = records(figures)
    entries = ledger(rounds, used)
    assert entries["used"] == used
    assert entries["last"]["round"] == rounds[-1]["round"]
    assert entries["validation"]["id_accuracy"] == max(a for a, _ in figures)
    assert ("oracle" in entries) == (used == "oracle")
    if used == "oracle":
        assert entries["oracle"]["ood_accuracy"] == max(b for _, b in figures)
    for name in set(entries) - {"used"}:
        same = [r for r in rounds if r["round"] == entries[name]["round"]]
        assert {key: entries[name][key] for key in ("round", "id_accuracy", "ood_accuracy")} == {
            key: same[0][key] for key in ("round", "id_accuracy", "ood_accuracy")
        }
        assert entries[name]["looks_at"]


@settings(derandomize=True, deadline=None, max_examples=50)
@given(figures=FIGURES, target=st.floats(0, 1), used=st.sampled_from(["last", "validation"]))
def test_the_target_decides_nothing_but_the_oracle(figures: list, target: float, used: str) -> None:
    changed = [(a, abs(target - b)) for a, b in figures]
    before, after = ledger(records(figures), used), ledger(records(changed), used)
    assert [before[name]["round"] for name in ("last", "validation")] == [
        after[name]["round"] for name in ("last", "validation")
    ]


def test_the_oracle_says_what_it_is() -> None:
    assert "upper bound" in SELECTIONS["oracle"].looks_at
    assert "target" not in SELECTIONS["validation"].looks_at
    with pytest.raises(KeyError):
        _ = ledger(records([(0.1, 0.2)]), "last")["oracle"]
