"""Amplitudes of low frequencies: what is exchanged, what stays, and the loss on transformed images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context
from fdgjax.data.augmentations import amplitude
from fdgjax.objectives import also_transformed, cross_entropy
from tests.toy_models import CLASSES, IMAGE, tiny_model
from tests.toys import close

# Images of small contrast, so that no mixture leaves the range of brightness.
RNG = np.random.default_rng(0)
IMAGES, OTHERS = (jnp.asarray(RNG.uniform(-0.2, 0.2, (3, 8, 7, 2)), jnp.float32) for _ in range(2))
low_amplitudes = jax.jit(amplitude.low_amplitudes, static_argnums=1)
mix_amplitudes = jax.jit(amplitude.mix_amplitudes, static_argnums=3)
SHARES = pytest.mark.parametrize(("share", "side"), [(0.0, 1), (0.01, 1), (0.2, 3), (0.4, 5), (0.45, 7)])


def transform(images: jax.Array) -> np.ndarray:
    """The Fourier transform of brightness, in float64."""
    return np.fft.fft2((np.asarray(images, np.float64) + 1) / 2, axes=(1, 2))


def low(side: int) -> np.ndarray:
    """Which frequencies are low, `[8, 7]`."""
    near = [np.abs(np.fft.fftfreq(n, 1 / n)) <= side // 2 for n in (8, 7)]
    return near[0][:, None] & near[1][None]


@SHARES
def test_only_low_frequencies_change_and_only_in_amplitude(share: float, side: int) -> None:
    given, mixture = low_amplitudes(OTHERS, share), jnp.asarray([0.0, 0.3, 1.0])
    assert given.shape == (3, side, side, 2)
    own, other, mixed = (transform(x) for x in (IMAGES, OTHERS, mix_amplitudes(IMAGES, given, mixture, share)))
    weight = np.asarray(mixture, np.float64)[:, None, None, None] * low(side)[None, :, :, None]
    wanted = ((1 - weight) * np.abs(own) + weight * np.abs(other)) * np.exp(1j * np.angle(own))
    np.testing.assert_allclose(mixed, wanted, atol=2e-5)
    assert np.max(np.abs(wanted[1:] - own[1:])) > 0.1


@SHARES
def test_without_a_share_of_the_other_an_image_is_itself(share: float, side: int) -> None:
    del side
    images = jnp.asarray(RNG.uniform(-1, 1, (2, 8, 7, 2)), jnp.float32)
    still = mix_amplitudes(images, low_amplitudes(-images, share), jnp.zeros(2), share)
    np.testing.assert_allclose(still, images, atol=2e-6)


def test_the_lowest_amplitude_is_the_mean_brightness() -> None:
    np.testing.assert_allclose(
        low_amplitudes(IMAGES, 0.0)[:, 0, 0], (np.asarray(IMAGES).mean((1, 2)) + 1) / 2, rtol=1e-5
    )


def test_black_images_and_brightness_beyond_white() -> None:
    black, white = -jnp.ones((1, 8, 8, 1)), jnp.ones((1, 8, 8, 1))
    lit = mix_amplitudes(black, low_amplitudes(white, 0.2), jnp.ones(1), 0.2)
    np.testing.assert_allclose(lit, 1, atol=1e-6)
    np.testing.assert_array_equal(mix_amplitudes(white, 9 * low_amplitudes(white, 0.2), jnp.ones(1), 0.2), 1)


MODEL = tiny_model()


def halved(batch: Batch, key: jax.Array, context: Context) -> jax.Array:
    del key, context
    return batch.inputs / 2


@pytest.mark.slow
@pytest.mark.parametrize(("strength", "meta_step"), [(0.0, 0.5), (0.7, 0.0), (0.7, 0.5)])
def test_the_second_loss_is_taken_after_a_step_on_the_first(strength: float, meta_step: float) -> None:
    variables, images = (
        jax.jit(MODEL.init)(jax.random.key(0)),
        jax.random.uniform(jax.random.key(1), (4, *IMAGE), minval=-1),
    )
    batch = Batch(images, jnp.arange(4, dtype=jnp.int32) % CLASSES, jnp.asarray([1.0, 1.0, 1.0, 0.0]))
    context, key = Context((), (), variables, jnp.int32(0)), jax.random.key(2)
    plain = jax.jit(jax.value_and_grad(lambda v, x: cross_entropy(MODEL)(v, batch._replace(inputs=x), key, context)[0]))
    objective = also_transformed(MODEL, halved, strength, meta_step)
    got = jax.jit(jax.value_and_grad(lambda v: objective(v, batch, key, context)[0]))(variables)
    first = plain(variables, images)
    second = plain(jax.tree.map(lambda w, g: w - meta_step * g, variables, first[1]), images / 2)
    close(got, jax.tree.map(lambda a, b: a + strength * b, first, second))


@pytest.mark.slow
def test_running_statistics_see_the_images_and_then_the_transformed_ones() -> None:
    model, images = tiny_model("norm"), jax.random.uniform(jax.random.key(1), (4, *IMAGE), minval=-1)
    variables, key = model.init(jax.random.key(0)), jax.random.key(2)
    batch = Batch(images, jnp.arange(4, dtype=jnp.int32) % CLASSES, jnp.ones(4))
    _, changed = also_transformed(model, halved, 0.7)(variables, batch, key, Context((), (), variables, jnp.int32(0)))
    _, once = model.apply(variables, images, True, key)
    close(changed, model.apply({**variables, **once}, images / 2, True, key)[1])
