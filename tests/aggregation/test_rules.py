"""The laws of aggregation, for every rule of the registry, its variations and what is made of rules."""

from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.aggregation import (
    ROBUST,
    RULES,
    chain,
    cosine_softmax,
    distance_reweighted,
    global_alignment,
    gradient_mask,
    gradient_matching,
    masked_update_mean,
    mean,
    min_norm,
    partition,
)
from fdgjax.contract import PyTree, Rule
from tests.toys import are_exact, precisions

N = 4
SHAPES = {"a": (3, 2), "b": {"scalar": (), "vector": (5,)}, "c": (1, 1, 2), "empty": (0, 3)}
LABELS = {"a": "one", "b": "two", "c": "one", "empty": "two"}


def masked_for_nobody(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
    return masked_update_mean(updates, jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), updates), weights)


VARIATIONS: Mapping[str, Rule] = {
    "masked": masked_for_nobody,
    "printed sign": partial(cosine_softmax, sign=-1),
    "distance": partial(distance_reweighted, beta=0.1),
    "distance, by tensors": partial(distance_reweighted, beta=0.1, distance="tensors"),
    "warm": partial(cosine_softmax, temperature=2.0),
    "cold": partial(cosine_softmax, temperature=0.2),
    "leaf": partial(cosine_softmax, scope="leaf"),
    "leaf, printed sign": partial(cosine_softmax, scope="leaf", sign=-1),
    "global alignment of the tree, mixed": partial(global_alignment, scope="tree", gamma=0.3),
    "hard mask": partial(gradient_mask, tau=0.7, mask="hard", votes="equal"),
    "chain of one": chain(mean),
    "chain": chain(cosine_softmax, partial(cosine_softmax, scope="leaf"), mean),
    "partition": partition({"one": mean, "two": cosine_softmax}, LABELS),
    "partition of a chain": partition({"one": chain(mean, cosine_softmax), "two": mean}, lambda updates: LABELS),
}
# Coefficients that are no shares: they need neither sum to one nor be the only ones that give the update.
POINTS: Mapping[str, Rule] = {
    "min_norm": RULES["min_norm"],
    "min_norm of the tree": partial(min_norm, scope="tree"),
    "min_norm as they are": partial(min_norm, normalize=False),
    "gradient_matching": partial(gradient_matching, scale="agreement"),
    "gradient_matching, official": partial(gradient_matching, scale="agreement", solver="descent"),
}
ALL: Mapping[str, Rule] = {**RULES, **VARIATIONS, **POINTS}
JITTED = {name: jax.jit(rule) for name, rule in ALL.items()}
LAW = settings(derandomize=True, deadline=None, max_examples=15)
SEEDS, SCALES = st.integers(0, 2**20), st.sampled_from([1e-6, 1e-2, 1.0, 1e5])
WEIGHTS = st.lists(st.integers(0, 1000), min_size=N, max_size=N).filter(lambda w: sum(w) > 0)
FORMS = {name: JITTED[name] for name in (*RULES, "masked", "chain", "partition", "min_norm of the tree")}
"""The rules that differ in more than a parameter: enough for laws that no parameter can break."""
QUICK = ("trimmed_mean", "krum", "centered_clipping")
"""Robust rules that run every time: the others take the same path with another number."""


def cases(rules: Mapping[str, Rule]) -> list[Any]:
    """The rules as cases, all but the quick ones of `ROBUST` in `make slow` alone."""
    slow = [name for name in ROBUST if name not in QUICK]
    return [pytest.param(rule, id=name, marks=[pytest.mark.slow] * (name in slow)) for name, rule in rules.items()]


every_rule = pytest.mark.parametrize("rule", cases(JITTED))
every_form = pytest.mark.parametrize("rule", cases(FORMS))


def is_shape(x: Any) -> bool:
    return isinstance(x, tuple)


def draw(seed: int, scale: float = 1.0) -> PyTree:
    """Independent normal updates `[N, ...]`; no two are parallel, and their mean is not near zero."""
    rng = np.random.default_rng(seed)

    def leaf(shape: tuple[int, ...]) -> np.ndarray:
        return (scale * (rng.normal(size=(N, *shape)) + rng.normal(size=shape))).astype(np.float32)

    return jax.tree.map(leaf, SHAPES, is_leaf=is_shape)


def of_clients(function: Callable[[np.ndarray], np.ndarray], tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: function(np.asarray(leaf)), tree)


def assert_close(left: PyTree, right: PyTree, rtol: float = 2e-5, scale: float = 1.0) -> None:
    chex.assert_trees_all_close(left, right, rtol=rtol, atol=2e-6 * scale)


def is_point(rule: Rule) -> bool:
    """Whether a rule is one of `POINTS`."""
    return any(rule is JITTED[name] for name in POINTS)


def assert_same(rule: Rule, left: tuple[PyTree, PyTree], right: tuple[PyTree, PyTree], scale: float = 1.0) -> None:
    """The same update and coefficients; a point of `POINTS` is found to the rounding of inner products, and its
    coefficients may be others."""
    if is_point(rule):
        chex.assert_trees_all_close(left[0], right[0], rtol=1e-3, atol=1e-3 * scale)
    else:
        assert_close(left[0], right[0], scale=scale)
        assert_close(left[1], right[1])


def as_weights(weights: list[int]) -> jax.Array:
    return jnp.asarray(weights, jnp.float32)


def test_the_laws_are_tested_of_every_robust_rule() -> None:
    assert set(ROBUST) <= set(RULES), "an entry of fdgjax.aggregation.RULES enrols a rule in the laws"


@every_form
def test_matrix_products_are_computed_in_full_precision(rule: Rule) -> None:
    found = {one for both in precisions(jax.make_jaxpr(rule)(draw(0))) for one in both or [None]}
    assert found <= {jax.lax.Precision.HIGHEST}
    assert are_exact(jax.make_jaxpr(mean)(draw(0)))
    assert not are_exact(jax.make_jaxpr(jnp.matmul)(jnp.ones((2, 2)), jnp.ones((2, 2))))


@every_rule
@LAW
@given(seed=SEEDS, scale=SCALES, weights=WEIGHTS, order=st.permutations(range(N)))
def test_the_order_of_clients_does_not_matter(
    rule: Rule, seed: int, scale: float, weights: list[int], order: list[int]
) -> None:
    updates, w = draw(seed, scale), as_weights(weights)
    update, coefficients = rule(updates, w)
    swapped = rule(of_clients(lambda leaf: leaf[order], updates), w[jnp.asarray(order)])
    assert_same(rule, swapped, (update, of_clients(lambda leaf: leaf[order], coefficients)), scale)


@every_rule
@pytest.mark.parametrize("rubbish", [np.nan, np.inf, -np.inf, 1e30])
def test_clients_of_weight_zero_are_invisible(rule: Rule, rubbish: float) -> None:
    updates, w = draw(3), jnp.asarray([2.0, 0.0, 1.0, 3.0])

    def spoil(leaf: np.ndarray) -> np.ndarray:
        return np.where(np.arange(N).reshape(-1, *[1] * (leaf.ndim - 1)) == 1, np.float32(rubbish), leaf)

    update, coefficients = rule(of_clients(spoil, updates), w)
    assert_same(rule, (update, coefficients), rule(updates, w))
    without = rule(of_clients(lambda leaf: leaf[[0, 2, 3]], updates), w[jnp.asarray([0, 2, 3])])
    assert_same(rule, (update, of_clients(lambda c: c[[0, 2, 3]], coefficients)), without)
    assert all((np.asarray(c)[1] == 0).all() for c in jax.tree.leaves(coefficients))


@every_rule
@LAW
@given(seed=SEEDS, weights=WEIGHTS, factor=st.floats(1e-3, 1e6))
def test_scaling_all_weights_changes_nothing(rule: Rule, seed: int, weights: list[int], factor: float) -> None:
    updates, w = draw(seed), as_weights(weights)
    assert_same(rule, rule(updates, w * jnp.float32(factor)), rule(updates, w))


@every_rule
@LAW
@given(seed=SEEDS, scale=SCALES, weights=WEIGHTS)
def test_identical_clients_give_the_common_update(rule: Rule, seed: int, scale: float, weights: list[int]) -> None:
    common = of_clients(lambda leaf: leaf[0], draw(seed, scale))
    update, _ = rule(of_clients(lambda leaf: np.stack([leaf] * N), common), as_weights(weights))
    assert_close(update, common, scale=scale)


@every_form
@LAW
@given(count=st.integers(0, 1000), weights=WEIGHTS)
def test_a_count_that_all_clients_have_is_not_rounded_down(rule: Rule, count: int, weights: list[int]) -> None:
    """Of integers, such as a network's count of its steps, the shares' rounding must leave nothing."""
    counts = of_clients(lambda leaf: np.full_like(leaf, count, np.int32), draw(0))
    update, _ = rule(counts, as_weights(weights))
    chex.assert_trees_all_equal(update, of_clients(lambda leaf: leaf[0], counts))


@every_rule
@LAW
@given(seed=SEEDS, weights=WEIGHTS)
def test_coefficients_are_shares(rule: Rule, seed: int, weights: list[int]) -> None:
    _, coefficients = rule(draw(seed), as_weights(weights))
    assert jax.tree.leaves(coefficients)
    for c in jax.tree.leaves(coefficients):
        assert c.shape == (N,)
        assert (np.asarray(c) >= 0).all()
        if not is_point(rule):
            np.testing.assert_allclose(np.sum(np.asarray(c, np.float64)), 1, rtol=1e-5)


@every_form
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_structure_shape_and_dtype_are_kept(rule: Rule, dtype: Any) -> None:
    updates = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), draw(0))
    update, _ = rule(updates)
    chex.assert_trees_all_equal_shapes_and_dtypes(update, of_clients(lambda leaf: leaf[0], updates))
    exact, _ = rule(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), updates))
    # bfloat16 has 8 bits; its rounding reaches the coefficients as well.
    rounded = 2.0 ** (-5 if is_point(rule) else -7) if dtype == jnp.bfloat16 else 1e-5
    for got, wanted in zip(jax.tree.leaves(update), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(np.asarray(got, np.float32), wanted, rtol=rounded, atol=rounded)


@every_rule
@pytest.mark.parametrize(
    "factors", [(0, 0, 0, 0), (1, 0, 0, 0), (1, 2, 3, 4), (1, -1, 1, -1), (1, -1, 0, 0), (1e15, 1, 1e-15, -1e15)]
)
def test_finite_for_zero_parallel_and_opposed_updates(rule: Rule, factors: tuple[float, ...]) -> None:
    def along(leaf: np.ndarray) -> np.ndarray:
        return np.asarray(factors, np.float32).reshape(-1, *[1] * (leaf.ndim - 1)) * leaf[:1]

    for weights in (None, jnp.ones(N), jnp.asarray([1.0, 0.0, 0.0, 0.0]), jnp.zeros(N)):
        chex.assert_tree_all_finite(rule(of_clients(along, draw(1)), weights))


@every_rule
def test_nobody_counts_nothing_changes(rule: Rule) -> None:
    update, coefficients = rule(of_clients(lambda leaf: np.full_like(leaf, np.nan), draw(1)), jnp.zeros(N))
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves((update, coefficients)))


@pytest.mark.slow
@every_form
def test_no_weights_are_equal_weights(rule: Rule) -> None:
    assert_same(rule, rule(draw(5)), rule(draw(5), jnp.full(N, 7.0)))
    assert_same(rule, rule(draw(5)), rule(draw(5), jnp.full(N, 7, jnp.int32)))


@every_form
def test_a_prefix_tree_of_equal_weights_is_one_weight(rule: Rule) -> None:
    updates, w = draw(6), jnp.asarray([3.0, 0.0, 1.0, 2.0])
    update, coefficients = rule(updates, jax.tree.map(lambda _: w, {"a": 0, "b": 0, "c": 0, "empty": 0}))
    assert_close(update, rule(updates, w)[0])
    for c in jax.tree.leaves(coefficients):
        assert is_point(rule) or np.sum(np.asarray(c)) == pytest.approx(1, rel=1e-5)


@every_form
def test_a_batch_of_problems_is_each_by_itself(rule: Rule) -> None:
    problems = [draw(seed) for seed in (7, 8, 9)]
    weights = jnp.asarray([[1.0, 2, 3, 4], [0, 1, 0, 2], [5, 5, 5, 5]])
    together = jax.jit(jax.vmap(rule))(jax.tree.map(lambda *leaves: np.stack(leaves), *problems), weights)
    for i, problem in enumerate(problems):
        assert_same(rule, of_clients(itemgetter(i), together), rule(problem, weights[i]))


@every_rule
def test_one_client_is_its_own_aggregate(rule: Rule) -> None:
    updates = of_clients(lambda leaf: leaf[:1], draw(2))
    assert_close(rule(updates)[0], of_clients(lambda leaf: leaf[0], updates))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_rule_may_be_followed_by_another(name: str) -> None:
    """Its coefficients have the form of weights: rules compose."""
    updates, weights = draw(4), jnp.asarray([3.0, 0.0, 1.0, 2.0])
    _, coefficients = JITTED[name](updates, weights)
    for second in ("mean", "partition"):
        update, _ = jax.jit(chain(ALL[name], ALL[second]))(updates, weights)
        assert_close(update, JITTED[second](updates, coefficients)[0])
