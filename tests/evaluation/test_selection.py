"""The rules of selection, and that nothing looks at the target unless asked for by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.evaluation.metrics import figures as figures_of
from fdgjax.evaluation.metrics import measure
from fdgjax.evaluation.selection import SELECTIONS, judges, ledger
from fdgjax.evaluation.tally import Tallies, Tally

FIGURES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8)


def records(figures: list[tuple[float, float]]) -> list[dict]:
    return [
        {"round": 5 * (i + 1), "id_accuracy": a, "id_all_accuracy": 1 - a, "ood_accuracy": b, "ece": 0.0}
        for i, (a, b) in enumerate(figures)
    ]


@settings(derandomize=True, deadline=None, max_examples=50)
@given(figures=FIGURES, used=st.sampled_from(sorted(SELECTIONS)))
def test_each_rule_chooses_by_what_it_says(figures: list[tuple[float, float]], used: str) -> None:
    rounds = records(figures)
    entries = ledger(rounds, used)
    assert entries["used"] == used
    assert entries["last"]["round"] == rounds[-1]["round"]
    assert entries["validation"]["id_accuracy"] == max(a for a, _ in figures)
    assert entries["validation_by_size"]["id_accuracy"] == rounds[np.argmax([1 - a for a, _ in figures])]["id_accuracy"]
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


def test_clients_may_count_by_their_size() -> None:
    """FLGo: the clients' accuracies weighted by their numbers of samples, here one of 10 and one of 90."""

    def record(round_: int, small: float, large: float) -> dict:
        correct, total = jnp.asarray([[10 * small], [90 * large]]), jnp.asarray([[10.0], [90.0]])
        counts, bins = jnp.zeros((2, 1)), jnp.zeros((2, 15))
        none = Tally(counts, counts, bins, bins, bins, jnp.zeros(2))
        tallies = Tallies(none._replace(correct=correct, total=total), none, none, None)
        measured = measure(jax.device_get(tallies), ["a"])
        assert measured.id_all_accuracy == pytest.approx((10 * small + 90 * large) / 100)
        return {"round": round_} | figures_of(measured)

    rounds = [record(1, 0.9, 0.5), record(2, 0.4, 0.7)]
    assert [SELECTIONS[name].choose(rounds)["round"] for name in ("validation", "validation_by_size")] == [1, 2]
    assert SELECTIONS["validation_by_size"].looks_at == SELECTIONS["validation"].looks_at


def test_the_oracle_says_what_it_is() -> None:
    assert "upper bound" in SELECTIONS["oracle"].looks_at
    assert "target" not in SELECTIONS["validation"].looks_at
    with pytest.raises(KeyError):
        _ = ledger(records([(0.1, 0.2)]), "last")["oracle"]


@pytest.mark.parametrize("rule", ["validation", "validation_by_size"])
def test_a_round_whose_predictions_are_nan_is_never_chosen_for_that(rule: str) -> None:
    scope = "id" if rule == "validation" else "id_all"
    errors = [{"round": i, f"{scope}_rmse": value} for i, value in enumerate([float("nan"), 2.0, float("nan"), 1.0])]
    assert SELECTIONS[rule].choose(errors)["round"] == 3
    assert SELECTIONS[rule].choose(errors[:1])["round"] == 0
    scores = [{"round": i, f"{scope}_auroc": value} for i, value in enumerate([float("nan"), 0.2, 0.7])]
    assert SELECTIONS[f"{rule}:auroc"].choose(scores)["round"] == 2


def test_where_no_round_can_be_judged_the_last_is_reported() -> None:
    rounds = records([(0.2, 0.5), (0.9, 0.5), (0.4, 0.5)])
    assert SELECTIONS["validation:auroc"].choose(rounds) == rounds[-1]
    assert [judges(rounds, rule) for rule in ("validation:auroc", "validation", "last")] == [False, True, True]
    assert judges([*rounds, {"round": 20, "id_auroc": 0.5}], "validation:auroc")
