"""Self-supervised losses: the official numbers, the definitions in float64, padding, and no NaN anywhere."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.objectives import info_nce, negative_cosine, nt_xent

LAW = settings(derandomize=True, deadline=None, max_examples=20)
LOSS = jax.jit(nt_xent)
WITH_QUEUE = jax.jit(info_nce)
COSINE = jax.jit(negative_cosine)


def unit(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float64) / np.linalg.norm(x, axis=1, keepdims=True)


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_simclr_is_the_official_codes(conformance: Path) -> None:
    data = np.load(conformance / "fedgala_losses.npz")
    z, temperature = jnp.asarray(data["simclr_features"]), float(data["simclr_temperature"])
    loss = lambda z: nt_xent(*jnp.split(z, 2), temperature=temperature)  # noqa: E731
    value, gradient = jax.jit(jax.value_and_grad(loss))(z)
    np.testing.assert_allclose(value, data["simclr_loss"], rtol=1e-5)
    np.testing.assert_allclose(gradient, data["simclr_grad"], rtol=1e-4, atol=1e-6)


def test_byol_and_simsiam_are_the_official_codes(conformance: Path) -> None:
    data = np.load(conformance / "fedgala_losses.npz")
    byol = 2 + 2 * COSINE(data["byol_online"], data["byol_target"])
    np.testing.assert_allclose(byol, data["byol_loss_per_example"], rtol=1e-5)
    simsiam = np.mean(COSINE(data["simsiam_p1"], data["simsiam_z2"]))
    np.testing.assert_allclose(simsiam, data["simsiam_neg_cosine_mean"], atol=1e-6)


@LAW
@given(seed=st.integers(0, 2**20), masked=st.sampled_from([(), (4,), (0, 5)]))
def test_nt_xent_is_its_definition_and_padding_is_invisible(seed: int, masked: tuple[int, ...]) -> None:
    first, second = draw(seed, 6, 5), draw(seed + 1, 6, 5)
    kept = np.setdiff1d(np.arange(6), masked)
    z, total = np.concatenate([unit(first[kept]), unit(second[kept])]), 0.0
    many = len(kept)
    for i in range(2 * many):
        raised = np.exp(z @ z[i] / 0.07)
        total -= np.log(raised[(i + many) % (2 * many)] / (raised.sum() - raised[i]))
    mask = np.isin(np.arange(6), kept).astype(np.float32)
    np.testing.assert_allclose(LOSS(first, second, mask), total / (2 * many), rtol=1e-4)


@LAW
@given(seed=st.integers(0, 2**20))
def test_info_nce_is_its_definition(seed: int) -> None:
    q, k, queue = draw(seed, 4, 5), draw(seed + 1, 4, 5), draw(seed + 2, 7, 5)
    own, former = np.sum(unit(q) * unit(k), axis=1) / 0.07, unit(q) @ unit(queue).T / 0.07
    wanted = np.log(np.exp(own) + np.exp(former).sum(axis=1)) - own
    mask = np.asarray([1, 1, 0, 1], np.float32)
    np.testing.assert_allclose(WITH_QUEUE(q, k, queue, mask), wanted[[0, 1, 3]].mean(), rtol=1e-4)


def test_targets_have_no_gradient() -> None:
    p, z, queue = (jnp.asarray(each) for each in (draw(0, 3, 4), draw(1, 3, 4), draw(2, 5, 4)))
    assert not np.any(jax.jit(jax.grad(lambda z: jnp.sum(negative_cosine(p, z))))(z))
    assert not np.any(jax.jit(jax.grad(lambda z: info_nce(p, z, queue)))(z))
    assert not np.any(jax.jit(jax.grad(lambda n: info_nce(p, z, n)))(queue))
    assert np.any(jax.jit(jax.grad(lambda p: info_nce(p, z, queue)))(p))


DEGENERATE = [
    jax.jit(jax.value_and_grad(loss))
    for loss in (
        lambda z, mask: nt_xent(z, z, mask),
        lambda z, mask: info_nce(z, z, z, mask),
        lambda z, mask: jnp.sum(mask * negative_cosine(z, z)),
    )
]


@pytest.mark.parametrize("mask", [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_nothing_is_nan_for_vectors_without_direction_or_company(mask: list[float], value: float) -> None:
    for loss in DEGENERATE:
        value_, gradient = loss(np.full((3, 4), value, np.float32), np.array(mask, np.float32))
        assert np.isfinite(value_)
        assert np.isfinite(gradient).all()
