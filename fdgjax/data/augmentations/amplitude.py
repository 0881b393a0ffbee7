"""Images with low-frequency amplitudes of other images (FedDG; after FDA: Yang & Soatto, CVPR 2020)."""

import jax
import jax.numpy as jnp

from fdgjax.data.augmentations.view import check_images

AXES = (1, 2)


def low_amplitudes(images: jax.Array, share: float) -> jax.Array:
    """The amplitudes `|F(x)|` of the lowest frequencies of each channel, `[batch, 2 b + 1, 2 b + 1, channels]` with the
    mean in the middle.

    `b = floor(share * min(H, W))`. F is the Fourier transform of brightness in [0, 1], divided by the number of pixels:
    the middle is the mean brightness.

    Args:
      images: `[batch, H, W, channels]` in [-1, 1].
      share: L, half of the window's side as a fraction of the spectrum's, from 0 to below 0.5.
    """
    return jnp.abs(spectrum(images)[low_window(images, share)])


def mix_amplitudes(images: jax.Array, amplitudes: jax.Array, mixture: jax.Array, share: float) -> jax.Array:
    """Images with low-frequency amplitudes `(1 - lambda) |F(x)| + lambda A` and their own phases.

    A frequency that is absent in the image has phase zero. Pixels are clipped to [-1, 1].

    Args:
      images: `[batch, H, W, channels]` in [-1, 1].
      amplitudes: A, as `low_amplitudes` gives them for the same `share`.
      mixture: lambda, `[batch]` in [0, 1].
      share: L.
    """
    whole, window = spectrum(images), low_window(images, share)
    own = jnp.abs(whole[window])
    phase = jnp.where(own > 0, whole[window] / jnp.where(own > 0, own, 1).astype(whole.dtype), 1)
    weight = mixture[:, None, None, None]
    mixed = whole.at[window].set(((1 - weight) * own + weight * amplitudes).astype(whole.dtype) * phase)
    pixels = jnp.fft.ifft2(jnp.fft.ifftshift(mixed, AXES), axes=AXES, norm="forward").real
    return jnp.clip(2 * pixels - 1, -1, 1)


def spectrum(images: jax.Array) -> jax.Array:
    """The Fourier transform of brightness with the mean in the middle, complex `[batch, H, W, channels]`.

    Raises:
      UserError: inputs that are no images.
    """
    check_images("an amplitude spectrum (FedDG)", images.shape, "a method that fits these data, such as fedavg")
    return jnp.fft.fftshift(jnp.fft.fft2((images + 1) / 2, axes=AXES, norm="forward"), AXES)


def low_window(images: jax.Array, share: float) -> tuple[slice, slice, slice]:
    """The slices of the lowest frequencies in a `spectrum`."""
    height, width = images.shape[1:3]
    half = int(share * min(height, width))
    rows, columns = (slice(side // 2 - half, side // 2 + half + 1) for side in (height, width))
    return slice(None), rows, columns
