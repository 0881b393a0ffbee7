"""Attention over clients: the official code's numbers, and its limits."""

from pathlib import Path

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.aggregation import attention
from fdgjax.utils.errors import UserError


@pytest.mark.slow
def test_the_official_codes_numbers(conformance: Path) -> None:
    data = np.load(conformance / "fdse_attention.npz")
    for case in range(sum(name.startswith("params_") for name in data.files)):
        personal, weights = attention(jnp.asarray(data[f"params_{case}"], jnp.float32), tau=float(data[f"tau_{case}"]))
        np.testing.assert_allclose(weights, data[f"weights_{case}"], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(personal, data[f"out_{case}"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**20), tau=st.floats(0.05, 5), order=st.permutations(range(4)))
def test_rows_sum_to_one_and_clients_may_be_reordered(seed: int, tau: float, order: list[int]) -> None:
    rng = np.random.default_rng(seed)
    params = {"a": jnp.asarray(rng.normal(size=(4, 3)), jnp.float32), "b": jnp.asarray(rng.normal(size=4), jnp.float32)}
    for scope in ("leaf", "tree"):
        personal, weights = attention(params, tau=tau, scope=scope)
        chex.assert_trees_all_equal_shapes_and_dtypes(personal, params)
        for matrix in weights.values() if scope == "leaf" else [weights]:
            np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-5)
            # Nobody resembles a client more than the client itself.
            assert (matrix <= jnp.diagonal(matrix)[:, None] + 1e-6).all()
        swapped, _ = attention({name: leaf[jnp.asarray(order)] for name, leaf in params.items()}, tau=tau, scope=scope)
        expected = {name: leaf[jnp.asarray(order)] for name, leaf in personal.items()}
        chex.assert_trees_all_close(swapped, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_cold_everyone_keeps_to_itself_and_equals_share() -> None:
    params = jnp.array([(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
    np.testing.assert_allclose(attention(params, tau=1e-3)[0][:2], params[:2], atol=1e-6)
    alike = jnp.array([(1.0, 2.0)] * 3)
    np.testing.assert_allclose(attention(alike, tau=0.5)[0], alike, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["leaf", "tree"])
def test_clients_of_weight_zero_are_invisible_to_the_others(scope: str) -> None:
    rng = np.random.default_rng(0)
    params = {"a": jnp.asarray(rng.normal(size=(4, 3)), jnp.float32), "b": jnp.asarray(rng.normal(size=4), jnp.float32)}
    weights, rest = jnp.asarray([3.0, 0.0, 1.0, 2.0]), jnp.asarray([0, 2, 3])
    spoiled = [{name: leaf.at[1].multiply(by) for name, leaf in params.items()} for by in (100, jnp.nan, jnp.inf)]
    seen = [attention(tree, weights, tau=0.5, scope=scope)[0] for tree in (params, *spoiled)]
    alone, _ = attention({name: leaf[rest] for name, leaf in params.items()}, tau=0.5, scope=scope)
    for personal in seen:
        chex.assert_trees_all_close({name: leaf[rest] for name, leaf in personal.items()}, alone, rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(attention(params, 7 * weights, tau=0.5, scope=scope)[0], seen[0])
    nobody, _ = attention(params, jnp.zeros(4), tau=0.5, scope=scope)
    chex.assert_trees_all_close(nobody, params, rtol=1e-6)


@pytest.mark.parametrize("factors", [(0, 0, 0, 0), (1, 2, 3, 4), (1, -1, 1, -1), (1e15, 1, 1e-15, -1e15)])
def test_finite_for_zero_parallel_and_opposed_parameters(factors: tuple[float, ...]) -> None:
    params = jnp.asarray(factors, jnp.float32)[:, None] * jnp.asarray([[1.0, -2.0, 0.5]])
    chex.assert_tree_all_finite(attention(params, tau=0.01))


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan")])
def test_tau_must_be_positive(tau: float) -> None:
    with pytest.raises(UserError, match=r"tau=.*; expected a positive number"):
        attention(jnp.ones((2, 2)), tau=tau)
