"""The axioms that define Shapley values, and their two forms."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.evaluation.shapley import (
    Coalition,
    Values,
    all_coalitions,
    leave_one_out,
    prefixes,
    shapley_of_orders,
    shapley_values,
)

GAMES = settings(derandomize=True, deadline=None, max_examples=25)
SIZES, SEEDS = st.integers(1, 5), st.integers(0, 99)
NOBODY: Coalition = frozenset()


def game(clients: int, seed: int) -> dict[Coalition, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {one: rng.normal(size=3) for one in (NOBODY, *all_coalitions(clients))}


@GAMES
@given(SIZES, SEEDS)
def test_they_are_efficient_and_additive(clients: int, seed: int) -> None:
    one, other = game(clients, seed), game(clients, seed + 100)
    found = shapley_values(one, clients)
    np.testing.assert_allclose(found.sum(axis=0), one[frozenset(range(clients))] - one[NOBODY], atol=1e-12)
    both = {key: one[key] + other[key] for key in one}
    np.testing.assert_allclose(shapley_values(both, clients), found + shapley_values(other, clients), atol=1e-12)


@GAMES
@given(st.integers(2, 5), SEEDS)
def test_equal_clients_have_equal_values_and_a_null_client_none(clients: int, seed: int) -> None:
    base = game(clients, seed)

    def swapped(one: Coalition) -> Coalition:
        return frozenset({0: 1, 1: 0}.get(i, i) for i in one)

    symmetric: Values = {key: base[key] + base[swapped(key)] for key in base}
    found = shapley_values(symmetric, clients)
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)
    null: Values = {key: base[key - {0}] for key in base}
    np.testing.assert_allclose(shapley_values(null, clients)[0], 0, atol=1e-12)
    np.testing.assert_allclose(leave_one_out(null, clients)[0], 0, atol=1e-12)


@GAMES
@given(st.integers(1, 4), SEEDS)
def test_all_orders_give_the_same_and_some_are_efficient(clients: int, seed: int) -> None:
    values, orders = game(clients, seed), list(itertools.permutations(range(clients)))
    np.testing.assert_allclose(shapley_of_orders(values, orders), shapley_values(values, clients), atol=1e-12)
    assert set(prefixes(orders)) == set(all_coalitions(clients))
    some = orders[seed % len(orders) :][:2]
    needed: Values = {key: values[key] for key in (NOBODY, *prefixes(some))}
    gained = shapley_of_orders(needed, some).sum(axis=0)
    np.testing.assert_allclose(gained, values[frozenset(range(clients))] - values[NOBODY], atol=1e-12)
