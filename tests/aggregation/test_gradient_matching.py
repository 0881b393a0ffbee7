"""Gradient matching: a certificate of the optimum, its ends, and the official code's search by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.aggregation import gradient_matching, mean
from fdgjax.utils.errors import UserError

MATCHED = jax.jit(gradient_matching, static_argnames=("kappa", "scale", "solver"))
CASES = (0, 1, 2, 3)


def draw(seed: int, spread: float = 1.0) -> np.ndarray:
    """Five clients' updates that disagree more or less."""
    rng = np.random.default_rng(seed)
    return (spread * rng.normal(size=(5, 7)) + rng.normal(size=7)).astype(np.float32)


def dual(updates: np.ndarray, weights: np.ndarray, kappa: float, gamma: np.ndarray) -> float:
    """What gamma minimises."""
    g, combined = weights @ updates, gamma @ updates
    return float(combined @ g + kappa * np.linalg.norm(g) * np.linalg.norm(combined))


def gamma_of(coefficients: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """gamma, which the coefficients `p + c gamma` contain."""
    rest = np.asarray(coefficients, np.float64) - weights
    return rest / rest.sum()


@pytest.mark.parametrize("kappa", [0.2, 0.9])
@pytest.mark.parametrize("seed", CASES)
def test_no_step_within_the_radius_agrees_more_with_the_client_it_agrees_with_least(seed: int, kappa: float) -> None:
    """Both sides of the duality meet, so that neither gamma nor the step can be improved."""
    updates, weights = draw(seed, 1 + seed).astype(np.float64), np.arange(1.0, 6) / 15
    step, coefficients = MATCHED(np.float32(updates), np.float32(weights), kappa=kappa)
    step, g = np.asarray(step, np.float64), weights @ updates
    least = (updates @ step).min()
    np.testing.assert_allclose(np.linalg.norm(step - g), kappa * np.linalg.norm(g), rtol=1e-4)
    bound = dual(updates, weights, kappa, gamma_of(coefficients, weights))
    scale = np.linalg.norm(updates, axis=1).max() * np.linalg.norm(g)
    assert abs(bound - least) < 2e-4 * scale
    # Any other gamma bounds it, too, from further above.
    others = np.random.default_rng(seed).dirichlet(np.ones(5), size=200)
    assert least <= min(dual(updates, weights, kappa, one) for one in others) + 2e-4 * scale


@pytest.mark.slow
def test_without_a_radius_it_is_the_mean_and_clients_that_agree_move_by_one_radius_more() -> None:
    updates, weights = draw(0), np.array([1, 2, 0, 3, 1], np.float32)
    np.testing.assert_allclose(MATCHED(updates, weights, kappa=0.0)[0], mean(updates, weights)[0], rtol=1e-5)
    same = np.broadcast_to(updates[:1], updates.shape)
    for scale, factor in (("paper", 1.5), ("official", 1.5 / 1.25), ("agreement", 1.0)):
        np.testing.assert_allclose(MATCHED(same, weights, scale=scale)[0], factor * updates[0], rtol=1e-4)


@pytest.mark.slow
def test_updates_that_cancel_leave_the_mean() -> None:
    opposed = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0.0, 0.0]], np.float32)
    update, _ = MATCHED(opposed, np.array([2, 1, 1, 1, 1], np.float32), kappa=1.5)
    np.testing.assert_allclose(update, [1 / 6, 0], atol=1e-3)


@pytest.mark.slow
def test_a_client_that_is_almost_idle_shortens_the_matched_part_in_proportion() -> None:
    """Below a hundredth of the mean length (the official floor), there is no jump: half as long, half the part."""
    busy = np.array([[1, 0.2], [1, -0.2]], np.float32)

    def matched(idle: float, solver: str = "exact") -> np.ndarray:
        updates = np.append(busy, np.array([[-idle, 0]], np.float32), axis=0)
        return np.asarray(MATCHED(updates, None, solver=solver)[0]) - updates.mean(axis=0)

    full, tenth, twentieth = (np.linalg.norm(matched(idle)) for idle in (0.05, 6e-4, 3e-4))
    np.testing.assert_allclose(full, 0.5 * np.linalg.norm(busy.sum(axis=0) - [0.05, 0]) / 3, rtol=1e-3)
    np.testing.assert_allclose(tenth / full, 6e-4 / 0.0101 * 3 / (2 * np.linalg.norm(busy[0])), rtol=0.05)
    np.testing.assert_allclose(twentieth / tenth, 0.5, rtol=0.02)
    for idle in (6e-4, 3e-4):
        np.testing.assert_allclose(np.linalg.norm(matched(idle, "descent")), np.linalg.norm(matched(idle)), rtol=0.15)


def official(updates: np.ndarray, kappa: float) -> np.ndarray:
    """The coefficients of the official code's step for equal weights, in float64, its gradient by hand."""
    n = len(updates)
    gram = updates @ updates.T
    gram = gram / (np.sqrt(np.diag(gram)).mean()) ** 2
    pull = gram.mean(1)
    radius = kappa * np.sqrt(pull.mean() + 1e-4)
    logits, velocity, best = np.zeros(n), np.zeros(n), (np.inf, np.zeros(n))
    for _ in range(21):
        gamma = np.exp(logits - logits.max())
        gamma /= gamma.sum()
        length = np.sqrt(gamma @ gram @ gamma + 1e-4)
        value = gamma @ pull + radius * length
        best = min(best, (value, gamma), key=lambda pair: pair[0])
        by_gamma = pull + radius * gram @ gamma / length
        velocity = 0.5 * velocity + gamma * (by_gamma - gamma @ by_gamma)
        logits = logits - 25 * velocity
    gamma = best[1]
    along = radius / (np.sqrt(gamma @ gram @ gamma + 1e-4) + 1e-4)
    return (1 / n + along * gamma) / (1 + kappa**2)


@pytest.mark.parametrize("seed", CASES[:2])
@pytest.mark.parametrize(("spread", "idle"), [(0.5, 1.0), (0.5, 1e-2), (0.5, 1e-4), (0.02, 1.0), (2.0, 1.0)])
def test_the_official_search_by_hand(seed: int, spread: float, idle: float) -> None:
    """Also with a client that is almost idle, where the floors of the official code's lengths count, with clients that
    nearly agree, where the search ends on its way, and with clients that disagree, where its last point is not its best
    one."""
    updates = draw(seed, spread)
    updates[0] *= idle
    for size in (1, 30):
        step, coefficients = MATCHED(size * updates, None, kappa=0.5, scale="official", solver="descent")
        wanted = official(size * updates.astype(np.float64), 0.5)
        np.testing.assert_allclose(step, size * wanted @ updates, rtol=2e-3, atol=2e-3 * size)
        np.testing.assert_allclose(coefficients, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("wrong", [{"kappa": -0.1}, {"kappa": float("nan")}, {"scale": "papre"}, {"solver": "sgd"}])
def test_a_mistake_is_named_in_one_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"expected|did you mean") as error:
        gradient_matching(jnp.ones((2, 3)), **wrong)
    assert "\n" not in str(error.value)
