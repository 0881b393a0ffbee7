"""FedGaLA's global alignment: the official numbers, float64 NumPy from the formula, and what it reduces to."""

from functools import partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.aggregation import global_alignment, mean
from fdgjax.utils.errors import UserError
from tests.aggregation.test_formulas import as_matrix
from tests.aggregation.test_rules import SCALES, SEEDS, WEIGHTS, as_weights, draw

LAW = settings(derandomize=True, deadline=None, max_examples=20)
TREE = {n: jax.jit(partial(global_alignment, scope="tree", iterations=n, gamma=0.25)) for n in (0, 1, 3)}


def shares(vectors: np.ndarray, weights: np.ndarray, iterations: int, gamma: float) -> np.ndarray:
    uniform = now = weights / weights.sum()
    for _ in range(iterations):
        direction = now @ vectors
        cosine = vectors @ direction / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(direction))
        raised = uniform * (1 + cosine)
        now = raised / raised.sum()
    return (1 - gamma) * now + gamma * uniform


@pytest.mark.parametrize("case", range(4))
def test_the_official_weights(case: int, conformance: Path) -> None:
    arrays = np.load(conformance / "fedgala_global_alignment.npz")
    iterations, gamma = int(arrays[f"iterations_{case}"]), float(arrays[f"gamma_{case}"])
    update, weights = global_alignment(jnp.asarray(arrays[f"updates_{case}"]), iterations=iterations, gamma=gamma)
    np.testing.assert_allclose(weights, arrays[f"weights_{case}"], atol=1e-6)
    np.testing.assert_allclose(update, arrays[f"weights_{case}"] @ arrays[f"updates_{case}"], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@LAW
@given(seed=SEEDS, scale=SCALES, weights=WEIGHTS, iterations=st.sampled_from(sorted(TREE)))
def test_it_is_its_formula(seed: int, scale: float, weights: list[int], iterations: int) -> None:
    updates = draw(seed, scale)
    _, coefficients = TREE[iterations](updates, as_weights(weights))
    wanted = shares(as_matrix(updates), np.asarray(weights, np.float64), iterations, 0.25)
    np.testing.assert_allclose(coefficients, wanted, atol=2e-6)


def official_shares(vectors: np.ndarray, sizes: np.ndarray, iterations: int, gamma: float) -> np.ndarray:
    """The official code's steps: updates times sample shares, from their plain mean; the weights know no shares."""
    vectors = sizes[:, None] / sizes.sum() * vectors
    now, weights = vectors.mean(axis=0), np.full(len(vectors), 1 / len(vectors))
    for _ in range(iterations):
        cosine = vectors @ now / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(now))
        weights = np.abs((cosine + 1) / 2)
        weights /= weights.sum()
        now = (vectors * weights[:, None]).sum(axis=0)
    return (1 - gamma) * weights + gamma / len(vectors)


@pytest.mark.parametrize(("iterations", "gamma"), [(1, 0.0), (3, 0.25)])
def test_updates_are_compared_with_what_sample_shares_make_of_them(iterations: int, gamma: float) -> None:
    updates, sizes = draw(9), np.asarray([50.0, 3.0, 10.0, 1.0])
    factors = jnp.asarray(sizes, jnp.float32)
    update, coefficients = global_alignment(updates, factors=factors, iterations=iterations, gamma=gamma, scope="tree")
    wanted = official_shares(as_matrix(updates), sizes, iterations, gamma)
    np.testing.assert_allclose(coefficients, wanted, atol=2e-6)
    assert np.abs(wanted - shares(as_matrix(updates), np.ones(4), iterations, gamma)).max() > 1e-3
    chex.assert_trees_all_close(update, mean(updates, coefficients)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [{"iterations": 0}, {"gamma": 1.0}])
def test_without_it_the_mean_is_left(chosen: dict[str, Any]) -> None:
    updates, weights = draw(5), jnp.asarray([1.0, 2.0, 0.0, 4.0])
    update, _ = global_alignment(updates, weights, **chosen)
    chex.assert_trees_all_close(update, mean(updates, weights)[0], rtol=1e-6)


@pytest.mark.slow
def test_who_agrees_counts_for_more_with_every_iteration() -> None:
    updates = jnp.asarray([[1.0, 0.1], [1.0, -0.1], [-0.2, 1.0]])
    each = [np.asarray(global_alignment(updates, iterations=n)[1]) for n in (0, 1, 3)]
    assert each[0][2] > each[1][2] > each[2][2]


def test_opposed_clients_keep_their_shares() -> None:
    update, coefficients = global_alignment(jnp.asarray([[1.0, 2.0], [-1.0, -2.0]]))
    np.testing.assert_allclose(coefficients, [0.5, 0.5])
    np.testing.assert_allclose(update, 0, atol=1e-7)


@pytest.mark.parametrize("wrong", [{"iterations": -1}, {"gamma": 1.5}, {"gamma": -0.1}])
def test_impossible_settings_are_refused_in_one_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="expected at least 0") as error:
        global_alignment(jnp.ones((2, 3)), **wrong)
    assert "\n" not in str(error.value)
