"""The rules against float64 NumPy written from their definitions, and what they refuse."""

from collections.abc import Callable
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from fdgjax.aggregation import chain, cosine_softmax, global_alignment, gradient_mask, mean, partition
from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError
from tests.aggregation.test_rules import LABELS, SCALES, SEEDS, WEIGHTS, N, as_weights, assert_close, draw

LAW = settings(derandomize=True, deadline=None, max_examples=40)
MEAN = jax.jit(mean)
COSINE = jax.jit(cosine_softmax, static_argnames=("sign", "temperature", "scope"))
ALIGNED = jax.jit(global_alignment, static_argnames="scope")
MASKED = jax.jit(gradient_mask, static_argnames=("tau", "mask", "votes"))


def as_matrix(updates: PyTree) -> np.ndarray:
    """All leaves side by side in float64, `[clients, numbers]`."""
    return np.concatenate([np.asarray(u, np.float64).reshape(N, -1) for u in jax.tree.leaves(updates)], axis=1)


def align(vectors: np.ndarray, weights: np.ndarray, sign: int = 1, temperature: float = 1.0) -> np.ndarray:
    """`c_i = w_i exp(sign cos_i / T) / sum_j w_j exp(sign cos_j / T)`, cos with the weighted mean."""
    direction = weights @ vectors / weights.sum()
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(direction)
    cosine = np.divide(vectors @ direction, norms, out=np.zeros(len(vectors)), where=norms > 0)
    raised = weights * np.exp(sign * cosine / temperature)
    return raised / raised.sum()


@LAW
@given(seed=SEEDS, scale=SCALES, weights=WEIGHTS)
def test_mean_is_the_weighted_average(seed: int, scale: float, weights: list[int]) -> None:
    updates = draw(seed, scale)
    update, coefficients = MEAN(updates, as_weights(weights))
    np.testing.assert_allclose(coefficients, np.asarray(weights) / np.sum(weights), rtol=1e-6)
    for got, leaf in zip(jax.tree.leaves(update), jax.tree.leaves(updates), strict=True):
        if leaf.size:
            wanted = np.average(leaf.astype(np.float64), axis=0, weights=weights)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("sign", [1, -1])
@LAW
@given(seed=SEEDS, scale=SCALES, weights=WEIGHTS)
def test_cosine_softmax_is_its_formula(
    sign: int, temperature: float, seed: int, scale: float, weights: list[int]
) -> None:
    updates = draw(seed, scale)
    update, coefficients = COSINE(updates, as_weights(weights), sign=sign, temperature=temperature)
    wanted = align(as_matrix(updates), np.asarray(weights, np.float64), sign, temperature)
    np.testing.assert_allclose(coefficients, wanted, rtol=5e-5, atol=1e-7)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(update)])
    np.testing.assert_allclose(flat, wanted @ as_matrix(updates), rtol=1e-4, atol=5e-6 * scale)


@pytest.mark.parametrize("scope", ["tree", "leaf"])
@pytest.mark.parametrize(
    "rule", [pytest.param(COSINE, id="cosine_softmax"), pytest.param(ALIGNED, id="global_alignment")]
)
@pytest.mark.parametrize("scale", [1e-30, 1e-21, 1e19, 1e30])
def test_the_scale_of_all_updates_does_not_matter_to_cosines(
    scale: float, rule: Callable[..., Any], scope: str
) -> None:
    updates = draw(3)
    plain, wanted = rule(updates, scope=scope)
    scaled, shares = rule(jax.tree.map(lambda leaf: np.float32(scale) * leaf, updates), scope=scope)
    assert max(np.ptp(c) for c in jax.tree.leaves(wanted)) > 0.01, "some clients agree more than others"
    assert_close(shares, wanted)
    assert_close(jax.tree.map(lambda leaf: np.float32(np.asarray(leaf, np.float64) / scale), scaled), plain)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_one_update_of_another_scale_has_its_cosine(scale: float) -> None:
    """A huge update is the direction of the mean; a tiny one still has a direction of its own."""
    updates = jax.tree.map(
        lambda leaf: leaf * np.where(np.arange(N) == 2, scale, 1).reshape(N, *[1] * (leaf.ndim - 1)), draw(4)
    )
    updates = jax.tree.map(np.float32, updates)
    _, shares = COSINE(updates)
    np.testing.assert_allclose(shares, align(as_matrix(updates), np.ones(N)), rtol=1e-4)


@pytest.mark.slow
@LAW
@given(seed=SEEDS, weights=WEIGHTS)
def test_leaf_scope_is_the_rule_on_each_leaf(seed: int, weights: list[int]) -> None:
    updates, w = draw(seed), as_weights(weights)
    update, coefficients = COSINE(updates, w, scope="leaf")
    chex.assert_trees_all_equal_structs(coefficients, updates)
    alone = [COSINE(leaf, w) for leaf in jax.tree.leaves(updates)]
    assert_close(jax.tree.leaves(update), [u for u, _ in alone])
    assert_close(jax.tree.leaves(coefficients), [c for _, c in alone])


@pytest.mark.slow
def test_agreement_is_favoured_by_plus_and_disfavoured_by_minus() -> None:
    updates = jnp.asarray([[1.0, 0], [1.0, 0.1], [1.0, -0.1], [-1.0, 0.3]])
    favoured, disfavoured = (COSINE(updates, sign=sign)[1] for sign in (1, -1))
    assert favoured[3] < 0.25 < favoured[0]
    assert disfavoured[3] > 0.25 > disfavoured[0]


def test_a_zero_update_counts_as_orthogonal() -> None:
    _, c = COSINE(jnp.asarray([[2.0, 0.0], [0.0, 0.0]]))
    np.testing.assert_allclose(c, np.exp([1, 0]) / np.exp([1, 0]).sum(), rtol=1e-6)


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-30])
def test_a_tiny_temperature_picks_the_best(temperature: float) -> None:
    updates = jnp.asarray([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    update, c = COSINE(updates, temperature=temperature)
    np.testing.assert_allclose(c, [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(update, updates[1])


@pytest.mark.slow
@LAW
@given(seed=SEEDS, weights=WEIGHTS)
def test_each_leaf_has_its_own_weights(seed: int, weights: list[int]) -> None:
    updates, w, flipped = draw(seed), as_weights(weights), as_weights(weights[::-1])
    tree = {"a": w, "b": flipped, "c": w, "empty": w}
    for rule in (MEAN, partial(COSINE, scope="leaf")):
        update, _ = rule(updates, tree)
        for name, share in tree.items():
            assert_close(update[name], rule(updates[name], share)[0])


@pytest.mark.slow
def test_partition_applies_each_rule_to_its_leaves_together() -> None:
    updates, w = draw(11), jnp.asarray([1.0, 2, 0, 4])
    update, coefficients = partition({"one": mean, "two": cosine_softmax}, LABELS)(updates, w)
    one, two = ({k: updates[k] for k in LABELS if LABELS[k] == word} for word in ("one", "two"))
    wanted = mean(one, w)[0] | cosine_softmax(two, w)[0]
    assert_close(update, wanted)
    for leaf in jax.tree.leaves(coefficients["b"]):
        np.testing.assert_allclose(leaf, cosine_softmax(two, w)[1], rtol=1e-5)
    np.testing.assert_allclose(coefficients["a"], mean(one, w)[1], rtol=1e-5)


@pytest.mark.slow
def test_chain_hands_coefficients_on_as_weights() -> None:
    updates, w = draw(12), jnp.asarray([1.0, 2, 0, 4])
    update, coefficients = chain(cosine_softmax, cosine_softmax)(updates, w)
    once = align(as_matrix(updates), np.asarray(w, np.float64))
    np.testing.assert_allclose(coefficients, align(as_matrix(updates), once), rtol=1e-5)
    assert_close(update, mean(updates, coefficients)[0])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda u: cosine_softmax(u, sign=0), "sign=0"),
        (lambda u: cosine_softmax(u, scope="layer"), "scope 'layer'"),
        (lambda u: cosine_softmax(u, temperature=0.0), "temperature=0.0"),
        (lambda u: cosine_softmax(u, temperature=-1.0), "temperature=-1.0"),
        (lambda u: cosine_softmax(u, temperature=float("nan")), "temperature=nan"),
        (lambda u: partition({"one": mean}, LABELS)(u), "'two'"),
        (lambda u: chain(), "no rule"),
    ],
)
def test_a_mistake_is_named_in_one_line(call: Callable[[PyTree], Any], named: str) -> None:
    with pytest.raises(UserError, match=named) as error:
        call(draw(0))
    assert "\n" not in str(error.value)
    assert "expected" in str(error.value)


@pytest.mark.parametrize("mask", ["soft", "hard"])
@pytest.mark.parametrize("votes", ["weights", "equal"])
def test_gradient_mask_is_the_mean_times_the_agreement_below_the_threshold(mask: str, votes: str) -> None:
    updates, weights = draw(3), np.asarray([1.0, 4.0, 2.0, 1.0])
    matrix = as_matrix(updates)
    voices = weights / weights.sum() if votes == "weights" else np.full(N, 1 / N)
    agreement = np.abs(voices @ np.sign(matrix))
    kept = np.where(agreement >= 0.6, 1, agreement if mask == "soft" else 0)
    assert 0 < np.sum(kept < 1) < kept.size
    update, coefficients = MASKED(updates, np.float32(weights), tau=0.6, mask=mask, votes=votes)
    np.testing.assert_allclose(coefficients, weights / weights.sum(), rtol=1e-6)
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(update)])
    np.testing.assert_allclose(flat, kept * (weights / weights.sum() @ matrix), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_an_agreement_that_equals_the_threshold_reaches_it() -> None:
    updates = {"w": jnp.asarray([[1.0], [2.0], [-1.0]])}
    # In float32, the first agreement is 0.4 or more and the second one less.
    for weights, kept in (([4.0, 3.0, 3.0], 0.7), ([7.0, 0.0, 3.0], 0.4)):
        update, _ = gradient_mask(updates, jnp.asarray(weights), tau=0.4, mask="hard")
        np.testing.assert_allclose(update["w"], [kept], rtol=1e-6)
    assert gradient_mask(updates, jnp.asarray([4.0, 3.0, 3.0]), tau=0.41, mask="hard")[0]["w"] == 0


def test_a_threshold_that_is_no_share_is_refused() -> None:
    with pytest.raises(UserError, match="expected a share from 0") as error:
        gradient_mask(draw(0), tau=1.5)
    assert "\n" not in str(error.value)
