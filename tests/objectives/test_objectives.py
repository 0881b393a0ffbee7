"""Losses against NumPy in float64; what the mask hides has no influence."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Batch, Context
from fdgjax.objectives import cross_entropy, proximal
from fdgjax.objectives.cross_entropy import masked_mean
from tests.toys import CLASSES, IMAGE, flat, tiny_model

LAW = settings(derandomize=True, deadline=None, max_examples=20)
MASKS = st.lists(st.booleans(), min_size=5, max_size=5)
MODEL = tiny_model()
PLAIN, PROXIMAL = cross_entropy(MODEL), proximal(cross_entropy(MODEL), 0.3)
GRADIENT = {
    "plain": jax.jit(jax.value_and_grad(PLAIN, has_aux=True)),
    "proximal": jax.jit(jax.value_and_grad(PROXIMAL, has_aux=True)),
}
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


@LAW
@given(seed=st.integers(0, 999), mask=MASKS)
def test_cross_entropy_is_its_formula(seed: int, mask: list[bool]) -> None:
    variables, batch, context = make(seed, mask)
    (loss, (changed, _)), _ = GRADIENT["plain"](variables, batch, KEY, context)
    logits = np.asarray(MODEL.apply(variables, batch.images, False, KEY)[0].logits, np.float64)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    nll = -np.log(p[np.arange(5), np.asarray(batch.labels)])
    np.testing.assert_allclose(loss, nll[mask].mean() if any(mask) else 0, rtol=1e-4, atol=1e-6)
    assert changed == {}


@pytest.mark.parametrize("kind", sorted(GRADIENT))
@LAW
@given(seed=st.integers(0, 999), mask=MASKS)
def test_the_mask_hides_samples(kind: str, seed: int, mask: list[bool]) -> None:
    variables, batch, context = make(seed, mask)
    seen = batch.mask.astype(bool)
    other = batch._replace(
        images=jnp.where(seen[:, None, None, None], batch.images, -batch.images),
        labels=jnp.where(seen, batch.labels, (batch.labels + 1) % CLASSES),
    )
    (loss, _), grads = GRADIENT[kind](variables, batch, KEY, context)
    (same, _), again = GRADIENT[kind](variables, other, KEY, context)
    np.testing.assert_array_equal(loss, same)
    np.testing.assert_array_equal(flat(grads), flat(again))
    assert np.isfinite(flat(grads)).all()


@LAW
@given(seed=st.integers(0, 999))
def test_the_proximal_term_pulls_towards_what_was_received(seed: int) -> None:
    variables, batch, context = make(seed, [True] * 5)
    (loss, _), grads = GRADIENT["proximal"](variables, batch, KEY, context)
    (plain, _), plain_grads = GRADIENT["plain"](variables, batch, KEY, context)
    gap = flat(variables) - flat(context.received)
    np.testing.assert_allclose(loss - plain, 0.3 / 2 * np.sum(gap**2), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(flat(grads) - flat(plain_grads), 0.3 * gap, rtol=1e-3, atol=1e-6)


def test_the_proximal_term_leaves_statistics_alone() -> None:
    model = tiny_model("norm")
    received = model.init(KEY)
    _, batch, _ = make(0, [True] * 5)
    moved = received | {"batch_stats": jax.tree.map(lambda leaf: leaf + 5, received["batch_stats"])}
    for objective in (proximal(cross_entropy(model), 2.0), cross_entropy(model)):
        loss, (changed, _) = objective(moved, batch, KEY, Context({}, {}, received, jnp.int32(0)))
        assert set(changed) == {"batch_stats"}
    near, _ = proximal(cross_entropy(model), 2.0)(moved, batch, KEY, Context({}, {}, received, jnp.int32(0)))
    np.testing.assert_allclose(near, loss, rtol=1e-6)


def test_the_mean_over_nobody_is_zero() -> None:
    assert masked_mean(jnp.asarray([3.0, 4.0]), jnp.zeros(2)) == 0
    assert masked_mean(jnp.asarray([3.0, 4.0]), jnp.asarray([0.0, 1.0])) == 4
