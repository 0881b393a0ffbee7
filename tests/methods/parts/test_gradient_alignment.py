"""Which gradients stay: those that go the way of the reference, layer by layer."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Context
from fdgjax.errors import UserError
from fdgjax.methods.parts.gradient_alignment import align_with, discard_rate

LAW = settings(derandomize=True, deadline=None, max_examples=30)
SHAPES = {"a": (3, 2), "b": (4,), "c": ()}


def draw(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    x, y = np.asarray(x, np.float64).ravel(), np.asarray(y, np.float64).ravel()
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


def aligned(gradient: object, reference: object, **chosen: object) -> tuple[dict, float]:
    transformation = align_with(lambda context: context.sent, **chosen)
    context = Context(reference, (), {}, jnp.int32(0))
    updates, state = transformation.update(gradient, transformation.init(gradient), context=context)
    return updates, float(discard_rate((state, optax.EmptyState())))


@LAW
@given(seed=st.integers(0, 2**20), threshold=st.sampled_from([-0.3, 0.0, 0.2]), sign=st.sampled_from([1, -1]))
def test_a_layer_stays_whole_or_goes_by_its_own_cosine(seed: int, threshold: float, sign: int) -> None:
    gradient, reference = draw(seed), draw(seed + 1)
    updates, rate = aligned(gradient, reference, threshold=threshold, sign=sign)
    stays = {name: -sign * cosine(g, reference[name]) >= threshold for name, g in gradient.items()}
    for name, g in gradient.items():
        np.testing.assert_array_equal(updates[name], g if stays[name] else 0 * g)
    assert rate == pytest.approx(1 - sum(stays.values()) / 3)


def test_descent_along_the_last_step_stays_and_the_official_sign_drops_it() -> None:
    step = draw(0)
    descent = jax.tree.map(np.negative, step)
    updates, rate = aligned(descent, step)
    jax.tree.map(np.testing.assert_array_equal, updates, descent)
    assert (rate, aligned(descent, step, sign=-1)[1]) == (0.0, 1.0)


def test_without_a_last_step_nothing_is_dropped() -> None:
    gradient = draw(3)
    updates, rate = aligned(gradient, jax.tree.map(np.zeros_like, gradient), threshold=0.5)
    jax.tree.map(np.testing.assert_array_equal, updates, gradient)
    assert rate == 0


def test_what_is_but_rounding_has_no_direction() -> None:
    step = {"a": jnp.ones(3), "b": jnp.ones(3)}
    updates, rate = aligned({"a": -jnp.ones(3), "b": 1e-7 * jnp.ones(3)}, step)
    np.testing.assert_array_equal(updates["b"], 1e-7 * jnp.ones(3))
    assert rate == 0


def test_the_rate_is_over_all_steps_of_a_round() -> None:
    step = {"a": jnp.ones(2), "b": jnp.ones(2)}
    optimizer = optax.chain(align_with(lambda context: context.sent), optax.sgd(0.1))
    state, context = optimizer.init(step), Context(step, (), {}, jnp.int32(0))
    for signs in ((-1, -1), (1, -1), (1, 1), (-1, -1)):
        gradient = {name: sign * leaf for sign, (name, leaf) in zip(signs, step.items(), strict=True)}
        _, state = optimizer.update(gradient, state, step, context=context)
    assert float(discard_rate(state)) == 3 / 8
    _, state = optimizer.update(step, state, step, context=context._replace(round=jnp.int32(1)))
    assert float(discard_rate(state)) == 1, "the next round is counted by itself"


@pytest.mark.parametrize("wrong", [{"sign": 0}, {"threshold": 1.5}])
def test_impossible_settings_are_refused_in_one_line(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="expected") as error:
        align_with(lambda context: context.sent, **wrong)
    assert "\n" not in str(error.value)
