"""Which gradients stay: those that go the way of the reference, layer by layer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Context
from fdgjax.methods.parts.gradient_alignment import DROPPED, align_with, discard_rate
from fdgjax.methods.parts.optimizers import optimizer as optimizer_by_name
from fdgjax.utils.errors import UserError

LAW = settings(derandomize=True, deadline=None, max_examples=30)
SHAPES = {"a": (3, 2), "b": (4,), "c": ()}


def draw(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    x, y = np.asarray(x, np.float64).ravel(), np.asarray(y, np.float64).ravel()
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


def aligned(gradient: object, reference: object, **chosen: Any) -> tuple[dict, float]:
    transformation = align_with(optax.identity(), lambda context: context.sent, **chosen)
    context = Context(reference, (), {}, jnp.int32(0))
    updates, state = transformation.update(gradient, transformation.init(gradient), context=context)
    return updates, float(discard_rate((state, optax.EmptyState())))


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 2**20), threshold=st.sampled_from([-0.3, 0.0, 0.2]), sign=st.sampled_from([1, -1]))
def test_a_layer_stays_whole_or_goes_by_its_own_cosine(seed: int, threshold: float, sign: int) -> None:
    gradient, reference = draw(seed), draw(seed + 1)
    updates, rate = aligned(gradient, reference, threshold=threshold, sign=sign)
    stays = {name: -sign * cosine(g, reference[name]) >= threshold for name, g in gradient.items()}
    for name, g in gradient.items():
        np.testing.assert_array_equal(updates[name], g if stays[name] else 0 * g)
    assert rate == pytest.approx(1 - sum(stays.values()) / 3)


@pytest.mark.slow
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
    optimizer = align_with(optax.sgd(0.1), lambda context: context.sent)
    state, context = optimizer.init(step), Context(step, (), {}, jnp.int32(0))
    for signs in ((-1, -1), (1, -1), (1, 1), (-1, -1)):
        gradient = {name: sign * leaf for sign, (name, leaf) in zip(signs, step.items(), strict=True)}
        _, state = optimizer.update(gradient, state, step, context=context)
    assert float(discard_rate(state)) == 3 / 8
    _, state = optimizer.update(step, state, step, context=context._replace(round=jnp.int32(1)))
    assert float(discard_rate(state)) == 1, "the next round is counted by itself"


@pytest.mark.parametrize("first_round", [0, 2])
def test_nothing_is_dropped_before_the_first_round(first_round: int) -> None:
    ascent = {"a": jnp.ones(2)}
    optimizer = align_with(optax.identity(), lambda context: context.sent, first_round=first_round)
    for round_ in range(4):
        context = Context(ascent, (), {}, jnp.int32(round_))
        updates, _ = optimizer.update(ascent, optimizer.init(ascent), ascent, context=context)
        np.testing.assert_array_equal(updates["a"], 1 if round_ < first_round else 0)


class TorchAdam:
    """PyTorch's Adam with an L2 gradient, of one array: `step` is called only where there is a gradient."""

    def __init__(self, w: np.ndarray) -> None:
        self.w, self.steps = np.asarray(w, np.float64), 0
        self.m = self.v = np.zeros_like(self.w)

    def step(self, g: np.ndarray) -> None:
        self.steps += 1
        g = g + 0.01 * self.w
        self.m, self.v = 0.9 * self.m + 0.1 * g, 0.999 * self.v + 0.001 * g * g
        corrected = self.m / (1 - 0.9**self.steps), self.v / (1 - 0.999**self.steps)
        self.w = self.w - 0.1 * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)


@pytest.mark.parametrize("dropped", sorted(DROPPED))
def test_what_a_dropped_gradient_is_to_the_optimiser(dropped: str) -> None:
    """The official code sets it to None: that array has no step, no decay, and keeps moments and count of steps."""
    rng, params = np.random.default_rng(0), draw(8)
    own = optimizer_by_name("adam", learning_rate=0.1, weight_decay=0.01)
    optimizer = align_with(DROPPED[dropped](own), lambda context: context.sent)
    step = jax.jit(optimizer.update)
    arrays, state, drops = {name: TorchAdam(w) for name, w in params.items()}, optimizer.init(params), 0
    for round_ in range(8):
        reference = draw(100 + round_)
        gradient = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
        context = Context(reference, (), {}, jnp.int32(round_))
        updates, state = step(gradient, state, params, context=context)
        params = optax.apply_updates(params, updates)
        for name, array in arrays.items():
            keep = -cosine(gradient[name], reference[name]) >= 0
            drops += not keep
            if keep or dropped == "zero":
                array.step(keep * gradient[name])
            np.testing.assert_allclose(params[name], array.w, rtol=1e-4, atol=1e-5)
    assert 8 <= drops <= 16


@pytest.mark.parametrize("wrong", [{"sign": 0}, {"threshold": 1.5}])
def test_impossible_settings_are_refused_in_one_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="expected") as error:
        align_with(optax.identity(), lambda context: context.sent, **wrong)
    assert "\n" not in str(error.value)
