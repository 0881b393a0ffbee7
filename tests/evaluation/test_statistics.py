"""Statistics agree with SciPy's own tests, and with what is known of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fdgjax.evaluation.statistics import (
    Spread,
    Values,
    image_error,
    over_targets,
    paired,
    ranking,
    spread,
    tolerance,
    verdict,
)

FIGURES = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6)


def of_one_target(values: list[float]) -> Values:
    return {("r0", seed): value for seed, value in enumerate(values)}


@settings(derandomize=True, deadline=None, max_examples=50)
@given(FIGURES, st.integers(0, 99))
def test_with_one_target_an_interval_is_that_of_the_paired_t_test(values: list[float], seed: int) -> None:
    others = np.random.default_rng(seed).random(len(values)).tolist()
    found = paired(of_one_target(values), of_one_target(others))
    assert found is not None
    wanted = stats.ttest_rel(values, others).confidence_interval()
    assert found.interval == pytest.approx((wanted.low, wanted.high), abs=1e-9)
    assert (found.wins, found.pairs) == (sum(a > b for a, b in zip(values, others, strict=True)), len(values))


def test_targets_are_fixed_and_seeds_are_drawn() -> None:
    rng = np.random.default_rng(0)
    seeds = {"a": range(4), "b": range(4, 8), "c": range(8, 12)}
    ours: Values = {(target, seed): rng.random() for target in "abc" for seed in seeds[target]}
    shifted = {(target, seed): value + {"a": 9, "b": -3, "c": 0}[target] for (target, seed), value in ours.items()}
    zero = dict.fromkeys(ours, 0.0)
    one, other = paired(ours, zero), paired(shifted, zero)
    assert one is not None
    assert other is not None
    # What differs between targets is no uncertainty; at most nine degrees of freedom of twelve pairs.
    assert one.error == pytest.approx(other.error)
    assert 3 <= one.freedom <= 9
    table = np.asarray([[ours[target, seed] for seed in seeds[target]] for target in "abc"])
    # With equally many seeds: the pooled deviation within targets over the root of the pairs.
    assert one.error == pytest.approx(np.sqrt(table.var(axis=1, ddof=1).mean() / 12))
    assert other.mean == pytest.approx(table.mean() + 2)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(2, 5), st.integers(2, 5), st.floats(0.1, 10.0), st.integers(0, 99))
def test_of_two_targets_an_interval_is_that_of_welchs_test(first: int, second: int, noise: float, seed: int) -> None:
    """The mean of two targets is half the first's distance from the second's negative."""
    rng = np.random.default_rng(seed)
    one, other = rng.normal(1, 1, first), rng.normal(-2, noise, second)
    drawn = {("a", i): value for i, value in enumerate(one)} | {("b", 9 + i): value for i, value in enumerate(other)}
    found, wanted = paired(drawn, dict.fromkeys(drawn, 0.0)), stats.ttest_ind(one, -other, equal_var=False)
    assert found is not None
    assert found.freedom == pytest.approx(wanted.df)
    interval = wanted.confidence_interval()
    assert found.interval == pytest.approx((interval.low / 2, interval.high / 2))


def test_a_target_with_one_seed_has_the_others_variance() -> None:
    drawn: Values = {("a", 0): 1.0, ("a", 1): 3.0, ("a", 2): 5.0, ("b", 0): 5.0}
    found = paired(drawn, dict.fromkeys(drawn, 0.0))
    assert found is not None
    assert (found.mean, found.freedom) == (4.0, pytest.approx(2.0))
    assert found.error == pytest.approx(np.sqrt(4 / 3 + 4) / 2)


def test_where_a_seed_does_nothing_to_all_targets_alike_targets_are_as_independent_as_with_other_seeds() -> None:
    of_a = np.random.default_rng(0).normal(size=4)
    one: Values = {("a", s): of_a[s] for s in range(4)} | {("b", s): 2 - 3 * of_a[s] for s in range(4)}
    apart = {(target, s + 9 * (target == "b")): value for (target, s), value in one.items()}
    found, wanted = (paired(drawn, dict.fromkeys(drawn, 0.0)) for drawn in (one, apart))
    assert found is not None
    assert found == wanted


@pytest.mark.parametrize("count", [2, 20])
def test_where_a_seed_does_the_same_to_all_targets_the_interval_is_that_of_the_seeds_means(count: int) -> None:
    """Thirty targets tell then no more of the method than one."""
    rng = np.random.default_rng(2)
    alike = rng.normal(0, 1, count)
    drawn: Values = {(f"{t}", s): alike[s] + t + 0.1 * rng.normal() for t in range(30) for s in range(count)}
    found = paired(drawn, dict.fromkeys(drawn, 0.0))
    assert found is not None
    means = [np.mean([drawn[f"{t}", s] for t in range(30)]) for s in range(count)]
    wanted = stats.ttest_1samp(means, 0).confidence_interval()
    assert found.interval == pytest.approx((wanted.low, wanted.high))
    # The same from other seeds of each target is independent.
    apart = {(t, s + count * int(t)): value for (t, s), value in drawn.items()}
    alone = paired(apart, dict.fromkeys(apart, 0.0))
    assert alone is not None
    assert alone.error < found.error / 3


@pytest.mark.parametrize("alike", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("noise", [1.0, 5.0])
def test_the_interval_covers_the_truth_as_often_as_it_says(noise: float, alike: float) -> None:
    rng, inside = np.random.default_rng(1), 0
    for _ in range(2000):
        of_seed = alike * rng.normal(size=3)
        drawn: Values = {
            (target, seed): shift + of_seed[seed] + scale * rng.normal()
            for target, shift, scale in (("a", 4, 1), ("b", 0, noise))
            for seed in (0, 1, 2)
        }
        found = paired(drawn, dict.fromkeys(drawn, 0.0))
        assert found is not None
        assert found.interval is not None
        inside += found.interval[0] <= 2 <= found.interval[1]
    # With three seeds and equal noise a little more often.
    assert 0.94 <= inside / 2000 <= 0.98


def test_too_few_seeds_say_nothing() -> None:
    one: Values = {("a", 0): 0.5, ("b", 0): 0.7}
    found = paired(one, {("a", 0): 0.4, ("b", 0): 0.6, ("b", 1): 0.1})
    assert found is not None
    assert found.interval is None
    assert (found.words, found.wins, found.pairs) == ("too few seeds to say", 2, 2)
    assert paired(one, {("c", 0): 0.1}) is None


def test_a_method_that_lacks_a_target_has_no_place() -> None:
    whole: Values = {(target, seed): 0.5 + seed / 10 for target in "ab" for seed in (0, 1)}
    better = {key: value + 0.1 for key, value in whole.items()}
    part = {key: 1.0 for key in whole if key[0] == "a"}
    found = ranking({"part": part, "whole": whole, "better": better, "empty": {}})
    assert [(one.name, one.place, one.targets) for one in found] == [
        ("better", 1, 2),
        ("whole", 2, 2),
        ("part", None, 1),
    ]
    assert found[0].behind is None
    assert [one.behind.pairs for one in found if one.behind] == [4, 2]
    # As many targets are not the same targets.
    elsewhere = {("c", seed): 1.0 for seed in (0, 1)}
    apart = ranking({"elsewhere": elsewhere, "part": part, "again": part})
    assert [(one.name, one.place, one.behind and one.behind.pairs) for one in apart] == [
        ("part", 1, None),
        ("again", 2, 2),
        ("elsewhere", None, None),
    ]


def test_means_over_targets_have_the_deviation_of_the_seeds_means() -> None:
    values: Values = {("a", 0): 0.5, ("a", 1): 0.7, ("b", 0): 0.1, ("b", 1): 0.3, ("b", 2): 0.5}
    assert over_targets(values) == pytest.approx(((0.6 + 0.3) / 2, np.std([0.3, 0.5], ddof=1), 2))
    assert over_targets({("a", 0): 0.5, ("b", 1): 0.7}) == pytest.approx((0.6, None, 1))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(FIGURES)
def test_beside_an_exact_mean_a_spread_has_the_interval_of_scipy(values: list[float]) -> None:
    found = spread([*values, None])
    assert found is not None
    assert found.n == len(values)
    if found.std:
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert tolerance(found, Spread(0.5, n=0)) == pytest.approx((high - low) / 2)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(FIGURES, FIGURES)
def test_a_tolerance_is_half_the_interval_of_students_two_samples(ours: list[float], theirs: list[float]) -> None:
    one, other = spread(ours), spread(theirs)
    assert one is not None
    assert other is not None
    if min(np.std(ours), np.std(theirs)) > 1e-6:
        low, high = stats.ttest_ind(ours, theirs).confidence_interval(0.95)
        assert tolerance(one, other) == pytest.approx((high - low) / 2)


def test_a_single_seed_is_reproduced_by_the_interval_that_predicts_one() -> None:
    theirs = Spread(62.0, 4.0, 5)
    alone = stats.t.ppf(0.975, 4) * 4.0 * np.sqrt(1 + 1 / 5)
    assert tolerance(Spread(60.0), theirs) == pytest.approx(alone)
    # A deviation over an unknown number of seeds, or over something else, is none.
    assert tolerance(Spread(60.0, 1.0, 3), theirs._replace(n=0)) == pytest.approx(stats.t.ppf(0.975, 2) / np.sqrt(3))
    assert verdict(Spread(60.0), theirs._replace(n=0)) == "too few seeds to say"


def test_equal_programs_are_called_so_in_95_of_100_cases() -> None:
    draws = np.random.default_rng(0)
    for n, m in ((1, 3), (2, 5), (3, 3)):
        pairs = [(spread(list(draws.normal(size=n))), spread(list(draws.normal(size=m)))) for _ in range(2000)]
        verdicts = [verdict(one, other).startswith("reproduced") for one, other in pairs if one and other]
        assert np.mean(verdicts) == pytest.approx(0.95, abs=0.02)


def test_a_verdict_does_not_depend_on_who_is_ours_but_for_its_word() -> None:
    one, other = Spread(60.0, 1.0, 3), Spread(62.0, 4.0, 5)
    assert tolerance(one, other, 1.5) == tolerance(other, one, 1.5) > tolerance(one, other)
    assert verdict(one, other) == verdict(other, one) == "reproduced"
    far = Spread(90.0, 1.0, 3)
    assert (verdict(far, other), verdict(other, far)) == ("better", "worse")
    assert (verdict(far, other, larger=False), verdict(other, far, larger=False)) == ("worse", "better")


def test_the_error_of_test_images_is_the_binomial_deviation() -> None:
    drawn = np.random.default_rng(0).binomial(250, 0.8, 20000) / 250
    assert image_error(0.8, 250) == pytest.approx(drawn.std(), rel=0.02)


def test_equal_differences_decide_nothing() -> None:
    one, other = {("a", 0): 0.5, ("a", 1): 0.7}, {("a", 0): 0.4, ("a", 1): 0.6}
    found = paired(one, other)
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert (found.interval, found.words) == (None, "the same difference in every seed")
    # A mean of equal values differs from them by rounding.
    rounded = paired(
        {("a", seed): float(np.mean([0.1 * seed] * 3)) for seed in range(9)},
        {("a", seed): 0.1 * seed for seed in range(9)},
    )
    assert rounded is not None
    assert (rounded.wins, rounded.words) == (0, "equal")


def test_places_are_by_the_seeds_that_all_have() -> None:
    """A method that was run on an unlucky seed beside the others' is not behind them for that."""
    common: Values = {(target, 0): 0.6 for target in "ab"}
    more = {key: value + 0.05 for key, value in common.items()} | {(target, 1): 0.2 for target in "ab"}
    first, second = ranking({"common": common, "more": more})
    assert [(one.name, one.place, one.spread.n) for one in (first, second)] == [("more", 1, 1), ("common", 2, 1)]
    assert first.spread.mean == pytest.approx(0.65)
    # Without a common seed by all that each has.
    alone = ranking({"common": common, "other": {(target, 1): 0.7 for target in "ab"}})
    assert [(one.name, one.spread.mean) for one in alone] == [("other", 0.7), ("common", 0.6)]


def test_where_smaller_is_better_the_ranking_is_that_of_the_negatives() -> None:
    rng = np.random.default_rng(2)
    losses = {
        name: {(target, seed): float(rng.normal(place)) for target in "ab" for seed in range(4)}
        for place, name in enumerate(("third", "first", "second"))
    }
    negatives = {name: {key: -value for key, value in of.items()} for name, of in losses.items()}
    found, expected = ranking(losses, larger=False), ranking(negatives)
    assert [one.name for one in found] == [one.name for one in expected]
    assert [one.behind for one in found] == [one.behind for one in expected]
    assert [one.spread.mean for one in found] == pytest.approx([-one.spread.mean for one in expected])
