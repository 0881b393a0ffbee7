"""Distance-reweighted means and the consensus of sub-sets, by hand in NumPy."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.aggregation import distance_reweighted, mean, mean_of_subsets
from fdgjax.utils.errors import UserError

UPDATES = {"a": np.array([[1, 0], [0, 1], [2, 2], [9, 9]], np.float32), "b": np.array([0, 1, 3, 9], np.float32)}
SIZES = np.array([5.0, 1.0, 3.0, 0.0])


def by_hand(weights: np.ndarray, beta: float, distance: str) -> np.ndarray:
    weights = np.asarray(weights, np.float64)
    far_a, far_b = (leaf - np.tensordot(weights / weights.sum(), leaf, 1) for leaf in (UPDATES["a"], UPDATES["b"]))
    squares_a, squares_b = (far_a**2).sum(axis=1), far_b**2
    lengths = {"joint": np.sqrt(squares_a + squares_b), "tensors": np.sqrt(squares_a) + np.sqrt(squares_b)}[distance]
    raised = weights * np.exp(-beta * lengths / np.where(SIZES > 0, SIZES, 1))
    return raised / raised.sum()


@pytest.mark.parametrize("distance", ["joint", "tensors"])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_weights_fall_with_the_distance_per_sample(beta: float, distance: str) -> None:
    sizes = jnp.asarray(SIZES, jnp.float32)
    update, coefficients = distance_reweighted(UPDATES, sizes, beta=beta, sizes=sizes, distance=distance)
    wanted = by_hand(SIZES, beta, distance)
    np.testing.assert_allclose(coefficients, wanted, rtol=1e-5)
    np.testing.assert_allclose(update["a"], wanted @ UPDATES["a"], rtol=1e-5)
    assert (beta > 0) == (abs(wanted[0] - 5 / 9) > 1e-3)


def test_a_large_beta_chooses_the_nearest() -> None:
    sizes = jnp.asarray(SIZES, jnp.float32)
    _, coefficients = distance_reweighted(UPDATES, sizes, beta=1e6, sizes=sizes)
    np.testing.assert_array_equal(coefficients, [1, 0, 0, 0])


def test_an_unknown_distance_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'joint'"):
        distance_reweighted(UPDATES, beta=1.0, distance="jont")


@pytest.mark.slow
def test_the_consensus_is_the_mean_of_the_sub_sets_that_have_somebody() -> None:
    weights = jnp.asarray(SIZES, jnp.float32)
    members = jnp.asarray([[1, 1, 0, 0], [0, 0, 0, 1], [0, 1, 1, 1]], bool)
    update, coefficients = mean_of_subsets(UPDATES, weights, members=members, rule=mean)
    wanted = (np.array([5 / 6, 1 / 6, 0, 0]) + np.array([0, 1 / 4, 3 / 4, 0])) / 2
    np.testing.assert_allclose(coefficients, wanted, rtol=1e-6)
    np.testing.assert_allclose(update["b"], wanted @ UPDATES["b"], rtol=1e-6)
    everybody = partial(distance_reweighted, beta=2.0, sizes=weights)
    _, coefficients = mean_of_subsets(UPDATES, weights, members=jnp.ones((2, 4), bool), rule=everybody)
    np.testing.assert_allclose(coefficients, by_hand(SIZES, 2.0, "joint"), rtol=1e-5)
    _, nobody = mean_of_subsets(UPDATES, jnp.zeros(4), members=members, rule=mean)
    np.testing.assert_array_equal(nobody, np.zeros(4))
