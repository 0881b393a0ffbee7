"""Losses against NumPy in float64; what the mask hides has no influence."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Batch, Context
from fdgjax.objectives import contrast, cross_entropy, model_contrastive, proximal, shifted
from fdgjax.objectives.cross_entropy import masked_mean
from tests.toy_models import CLASSES, IMAGE, tiny_model
from tests.toys import flat

LAW = settings(derandomize=True, deadline=None, max_examples=20)
MASKS = st.lists(st.booleans(), min_size=5, max_size=5)
MODEL = tiny_model()
PLAIN = cross_entropy(MODEL)
OBJECTIVES = {
    "plain": PLAIN,
    "proximal": proximal(PLAIN, 0.3),
    "shifted": shifted(PLAIN, lambda context: jax.tree.map(jnp.sin, context.received["params"])),
    "contrastive": model_contrastive(
        MODEL, 0.7, 0.5, lambda context: jax.tree.map(lambda leaf: 0.5 - leaf, context.received)
    ),
}
GRADIENT = {name: jax.jit(jax.value_and_grad(one, has_aux=True)) for name, one in OBJECTIVES.items()}
KEY = jax.random.key(0)


def make(seed: int, mask: list[bool]) -> tuple[Any, Batch, Context]:
    rng = np.random.default_rng(seed)
    batch = Batch(
        jnp.asarray(rng.uniform(-1, 1, (5, *IMAGE)), jnp.float32),
        jnp.asarray(rng.integers(0, CLASSES, 5), jnp.int32),
        jnp.asarray(mask, jnp.float32),
    )
    received = MODEL.init(jax.random.key(seed))
    shift = jax.tree.map(lambda leaf: leaf + jnp.asarray(0.1 * rng.normal(size=leaf.shape), jnp.float32), received)
    return shift, batch, Context({}, {}, received, jnp.int32(0))


def test_a_masked_mean_is_a_mean_for_weights_below_one_too() -> None:
    values = jnp.array([2.0, 4.0, 9.0])
    for mask, expected in (([0.1, 0.3, 0.0], 3.5), ([0.0, 0.0, 0.0], 0.0), ([1.0, 1.0, 0.0], 3.0)):
        np.testing.assert_allclose(masked_mean(values, jnp.array(mask)), expected, rtol=1e-6)


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 999), mask=MASKS)
def test_cross_entropy_is_its_formula(seed: int, mask: list[bool]) -> None:
    variables, batch, context = make(seed, mask)
    (loss, changed), _ = GRADIENT["plain"](variables, batch, KEY, context)
    logits = np.asarray(MODEL.apply(variables, batch.inputs, False, KEY)[0].logits, np.float64)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    nll = -np.log(p[np.arange(5), np.asarray(batch.labels)])
    np.testing.assert_allclose(loss, nll[mask].mean() if any(mask) else 0, rtol=1e-4, atol=1e-6)
    assert changed == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(GRADIENT))
@LAW
@given(seed=st.integers(0, 999), mask=MASKS)
def test_the_mask_hides_samples(kind: str, seed: int, mask: list[bool]) -> None:
    variables, batch, context = make(seed, mask)
    seen = batch.mask.astype(bool)
    other = batch._replace(
        inputs=jnp.where(seen[:, None, None, None], batch.inputs, -batch.inputs),
        labels=jnp.where(seen, batch.labels, (batch.labels + 1) % CLASSES),
    )
    (loss, _), grads = GRADIENT[kind](variables, batch, KEY, context)
    (same, _), again = GRADIENT[kind](variables, other, KEY, context)
    np.testing.assert_array_equal(loss, same)
    np.testing.assert_array_equal(flat(grads), flat(again))
    assert np.isfinite(flat(grads)).all()


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 999))
def test_the_proximal_term_pulls_towards_what_was_received(seed: int) -> None:
    variables, batch, context = make(seed, [True] * 5)
    (loss, _), grads = GRADIENT["proximal"](variables, batch, KEY, context)
    (plain, _), plain_grads = GRADIENT["plain"](variables, batch, KEY, context)
    gap = flat(variables) - flat(context.received)
    np.testing.assert_allclose(loss - plain, 0.3 / 2 * np.sum(gap**2), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(flat(grads) - flat(plain_grads), 0.3 * gap, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 999))
def test_a_shift_is_one_of_the_gradient_alone(seed: int) -> None:
    variables, batch, context = make(seed, [True] * 5)
    slope = np.sin(flat(context.received))
    (loss, _), grads = GRADIENT["shifted"](variables, batch, KEY, context)
    (plain, _), plain_grads = GRADIENT["plain"](variables, batch, KEY, context)
    np.testing.assert_allclose(flat(grads) - flat(plain_grads), slope, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(loss, plain, rtol=1e-6)


def features_of(variables: Any, batch: Batch) -> np.ndarray:
    return np.asarray(MODEL.apply(variables, batch.inputs, False, KEY)[0].features, np.float64)


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 999), mask=MASKS.filter(any))
def test_the_contrast_is_its_formula(seed: int, mask: list[bool]) -> None:
    """Equation 3 of MOON, with two exponentials, in float64."""
    variables, batch, context = make(seed, mask)
    (loss, _), grads = GRADIENT["contrastive"](variables, batch, KEY, context)
    (plain, _), _ = GRADIENT["plain"](variables, batch, KEY, context)
    previous = jax.tree.map(lambda leaf: 0.5 - leaf, context.received)
    z, near, far = (features_of(v, batch) for v in (variables, context.received, previous))
    unit = lambda x: x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6)  # noqa: E731
    to_near, to_far = (np.exp(np.sum(unit(z) * unit(other), axis=1) / 0.5) for other in (near, far))
    wanted = -np.log(to_near / (to_near + to_far))[mask].mean()
    np.testing.assert_allclose(loss - plain, 0.7 * wanted, rtol=1e-3, atol=1e-5)
    assert np.isfinite(flat(grads)).all()


@pytest.mark.slow
def test_features_without_a_direction_have_no_gradient() -> None:
    """All units dead: both similarities are zero, and so are their gradients (not NaN)."""
    ones = jnp.ones((2, 3))
    value, grads = jax.value_and_grad(lambda z: jnp.sum(contrast(z, ones, -ones, 0.5)))(jnp.zeros((2, 3)))
    np.testing.assert_allclose(value, 2 * np.log(2), rtol=1e-6)
    assert np.isfinite(grads).all()


@pytest.mark.slow
def test_fixed_models_run_as_in_evaluation() -> None:
    """The received model's statistics, not the batch's; the trained model's statistics change as ever."""
    model = tiny_model("norm")
    received = model.init(KEY)
    _, batch, _ = make(0, [True] * 5)
    moved = received | {"batch_stats": jax.tree.map(lambda leaf: leaf + 2, received["batch_stats"])}
    losses = []
    for fixed in (received, moved):
        objective = model_contrastive(model, 1.0, 0.5, lambda context: received)
        loss, changed = objective(received, batch, KEY, Context({}, {}, fixed, jnp.int32(0)))
        assert set(changed) == {"batch_stats"}
        losses.append(float(loss))
    assert abs(losses[0] - losses[1]) > 1e-4


@pytest.mark.slow
def test_the_proximal_term_leaves_statistics_alone() -> None:
    model = tiny_model("norm")
    received = model.init(KEY)
    _, batch, _ = make(0, [True] * 5)
    moved = received | {"batch_stats": jax.tree.map(lambda leaf: leaf + 5, received["batch_stats"])}
    for objective in (proximal(cross_entropy(model), 2.0), cross_entropy(model)):
        loss, changed = objective(moved, batch, KEY, Context({}, {}, received, jnp.int32(0)))
        assert set(changed) == {"batch_stats"}
    near, _ = proximal(cross_entropy(model), 2.0)(moved, batch, KEY, Context({}, {}, received, jnp.int32(0)))
    np.testing.assert_allclose(near, loss, rtol=1e-6)


def test_the_mean_over_nobody_is_zero() -> None:
    assert masked_mean(jnp.asarray([3.0, 4.0]), jnp.zeros(2)) == 0
    assert masked_mean(jnp.asarray([3.0, 4.0]), jnp.asarray([0.0, 1.0])) == 4
