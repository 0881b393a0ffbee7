"""The set of methods that cannot be told from the best keeps its level, and the prediction interval its coverage."""

import numpy as np
import pytest

from fdgjax.evaluation.best_set import best_set, design_effect, mean_of_domains, prediction_interval, tells_apart
from fdgjax.evaluation.figure_kinds import figure_kind

DRAWS = 199


def accuracies(rng: np.random.Generator, methods: int, domains: int, seeds: int, scale: np.ndarray) -> np.ndarray:
    """Equal methods: a difficulty for each domain, a draw for each seed, and each method's own noise of this scale."""
    shared = 0.6 + 0.1 * rng.normal(size=(domains, 1)) + 0.03 * rng.normal(size=(domains, seeds))
    return shared + scale[:, None, None] * rng.normal(size=(methods, domains, seeds))


@pytest.mark.parametrize(("methods", "domains", "seeds"), [(2, 3, 3), (12, 2, 3), (12, 4, 3)])
def test_equal_methods_cannot_be_told_apart_in_95_of_100(methods: int, domains: int, seeds: int) -> None:
    """With 400 tables the share of right answers has a standard error of 1.1 %."""
    rng = np.random.default_rng(methods * domains)
    tables = (accuracies(rng, methods, domains, seeds, np.full(methods, 0.02)) for _ in range(400))
    kept = [len(best_set(table, DRAWS, seed).members) == methods for seed, table in enumerate(tables)]
    assert np.mean(kept) > 0.925
    assert np.mean(kept) < 0.98, "a test that keeps all in every case has no power"


@pytest.mark.parametrize("methods", [2, 12])
def test_equal_methods_whose_seeds_fare_alike_on_all_domains_are_not_told_apart_either(methods: int) -> None:
    """A test that takes the seeds of each domain as independent keeps twelve in 39 of 100 cases, two in 78."""
    rng = np.random.default_rng(6)
    tables = (
        accuracies(rng, methods, 4, 3, np.full(methods, 0.02)) + 0.02 * rng.normal(size=(methods, 1, 3))
        for _ in range(400)
    )
    kept = [len(best_set(table, DRAWS, seed).members) == methods for seed, table in enumerate(tables)]
    assert np.mean(kept) > 0.87


def test_the_design_effect_is_the_number_of_domains_where_a_seed_does_the_same_to_all() -> None:
    rng = np.random.default_rng(7)
    alike = np.repeat(rng.normal(size=(5, 1, 4)), 3, axis=1)
    assert design_effect(alike + rng.normal(size=(5, 3, 1))) == pytest.approx(3)
    # Opposite effects are no common one.
    assert design_effect(alike * np.array([1, -1, 0])[:, None]) == 1.0
    assert design_effect(alike[:1]) == design_effect(alike[:, :1]) == design_effect(alike[:, :, :1]) == 1.0


def test_equal_methods_of_unequal_noise_are_not_told_apart_either() -> None:
    """Half of them are three times as noisy, where a permutation of the methods keeps all in 86 of 100 cases alone."""
    rng, scale = np.random.default_rng(5), np.repeat([0.01, 0.03], 5)
    tables = (accuracies(rng, 10, 4, 3, scale) for _ in range(400))
    kept = [len(best_set(table, draws=DRAWS, seed=seed).members) == 10 for seed, table in enumerate(tables)]
    assert np.mean(kept) > 0.925


def test_worse_methods_are_left_out_and_the_best_stay() -> None:
    """Three equal ones, one 10 points behind, one 40: the far one does not hide the near one."""
    rng, right = np.random.default_rng(1), 0
    for seed in range(100):
        table = accuracies(rng, 5, 3, 3, np.full(5, 0.02)) - np.array([0, 0, 0, 0.1, 0.4])[:, None, None]
        right += set(best_set(table, DRAWS, seed).members) == {0, 1, 2}
    assert right >= 90


def test_the_set_is_the_head_of_the_ranking_and_depends_on_no_order() -> None:
    rng = np.random.default_rng(2)
    table = accuracies(rng, 6, 4, 3, np.full(6, 0.02)) - np.arange(6)[:, None, None] * 0.01
    found, order = best_set(table, draws=DRAWS), rng.permutation(6)
    ranked = np.argsort(-mean_of_domains(table))
    assert list(found.members) == list(ranked[: len(found.members)])
    assert {int(order[i]) for i in best_set(table[order], draws=DRAWS).members} == set(found.members)
    assert (found.p_value or 0) > 0.05


def test_accuracies_that_are_no_binary_fractions_are_as_equal_as_whole_numbers() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        whole = rng.integers(0, 5, size=(2, 2, 3))
        assert best_set(whole / 10).p_all == best_set(whole * 1.0).p_all


def test_one_method_or_one_pair_of_domain_and_seed_decides_nothing() -> None:
    assert best_set(np.full((1, 3, 3), 0.5)) == ((0,), 1.0, 1.0)
    assert len(best_set(np.array([0.1, 0.9]).reshape(2, 1, 1), draws=DRAWS).members) == 2


def test_so_many_pairs_are_needed_to_tell_methods_apart() -> None:
    for seeds in range(1, 9):
        far = np.stack([np.full((1, seeds), 0.9), np.full((1, seeds), 0.1)])
        assert tells_apart(seeds) == (len(best_set(far).members) == 1)


@pytest.mark.parametrize("domains", [2, 3, 5])
def test_a_new_domain_lies_in_the_interval_in_95_of_100(domains: int) -> None:
    rng = np.random.default_rng(domains)
    drawn = 0.5 + 0.01 * rng.normal(size=(2000, domains + 1))
    bounds = [prediction_interval(each[:-1]) for each in drawn]
    inside = [low <= new <= high for (low, high), new in zip(filter(None, bounds), drawn[:, -1], strict=True)]
    assert abs(np.mean(inside) - 0.95) < 0.02


def test_an_interval_is_wide_for_few_domains_and_stays_between_zero_and_one() -> None:
    assert prediction_interval([0.6]) is None
    assert prediction_interval([0.5, 0.9]) == (0.0, 1.0)
    assert prediction_interval([0.6, 0.6, 0.6]) == pytest.approx((0.6, 0.6))
    kind = figure_kind("ood_r2")
    low, high = prediction_interval([-0.5, -0.7, -0.9], kind.lowest, kind.highest) or (0, 0)
    assert low < -0.9 < high < 1
