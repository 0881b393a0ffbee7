"""BatchNorm as one factor and one summand per channel, which never writes its input centred."""

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn.geometry import at_least_float32


class BatchStatistics(NamedTuple):
    """How the BatchNorm layers of a network take the statistics of a batch in training; the first two as PyTorch, if
    true.

    unbiased: whether the running variance follows the unbiased variance, `n / (n - 1)` times the biased one, where n is
      the number of values per channel in the batch (for n = 1, which PyTorch refuses, the biased one). The batch is
      normalised by the biased variance in any case.
    masked: whether the samples that fill up a last partial batch are left out.
    frozen: by a layer's path, whether it normalises by its running statistics in training, too, which then never change
      (PyTorch's layers in evaluation mode), while scale and bias are trained as ever; None for no layer.
    """

    unbiased: bool = False
    masked: bool = False
    frozen: Callable[[str], bool] | None = None


FILLED_AND_BIASED = BatchStatistics()

SHORTEST_SQUARED = 1e-12
"""Of a vector that is divided by its length."""


class BatchNorm(nn.Module):
    """`flax.linen.BatchNorm` over the last axis: the same variables (`scale` and `bias` in `params`; `mean` and the
    biased `var` in `batch_stats`), the same results up to rounding and the same derivatives, those through the running
    statistics included. `BatchStatistics` has the two choices of PyTorch that differ from Flax's.

        a = scale / sqrt(var + epsilon)          y = a x + (bias - a mean)

    With one factor and one summand per channel, XLA fuses the layer into what follows, keeps nothing for the gradient
    but `x`, and needs two sums for it; `(x - mean) a` is written to memory and takes three. Means and variances,
    `E[x^2] - E[x]^2` as in Flax, are computed in float32 or better.

    Attributes:
      use_running_average: normalise by the running statistics instead of the batch's, and do not update them.
      momentum: share of the running statistics that stays.
      epsilon: added to variances.
      affine: whether it has a scale and a bias; without, they are 1 and 0.
    """

    use_running_average: bool
    momentum: float = 0.99
    epsilon: float = 1e-5
    affine: bool = True

    @nn.compact
    def __call__(
        self,
        parts: Sequence[jax.Array],
        statistics: BatchStatistics = FILLED_AND_BIASED,
        mask: jax.Array | None = None,
    ) -> list[jax.Array]:
        """Normalises an array that comes in parts along its last axis, and returns it in parts, so that it is
        concatenated, and written, only once, after the activation.

        Args:
          parts: `[batch, ..., C_i]` each; the variables are `[sum of C_i]`.
          statistics: how they are taken. Networks leave it out: `with_statistics` gives it to all their layers.
          mask: `[m]`, 0 for samples that fill up the batch, which has m samples, or several views of them one after
            the other. Networks leave it out: `with_mask` gives it. Unused unless `statistics.masked`.

        Returns:
          The same shapes.
        """
        wide = at_least_float32(parts[0].dtype)
        sizes = [part.shape[-1] for part in parts]
        shape = (sum(sizes),)
        starts = (("mean", jnp.zeros), ("var", jnp.ones))
        kept = [self.variable("batch_stats", name, start, shape, jnp.float32) for name, start in starts]
        # Constants instead of parameters must not decide the type of the result.
        own = parts[0].dtype
        scale = self.param("scale", nn.initializers.ones, shape) if self.affine else jnp.ones(shape, own)
        bias = self.param("bias", nn.initializers.zeros, shape) if self.affine else jnp.zeros(shape, own)
        frozen = statistics.frozen is not None and statistics.frozen("/".join(self.path))
        if self.use_running_average or frozen:
            mean, var = (statistic.value.astype(wide) for statistic in kept)
        else:
            counted = mask if statistics.masked else None
            mean, var = (
                jnp.concatenate(both) for both in zip(*(moments(part, counted) for part in parts), strict=True)
            )
            if not self.is_initializing():
                spread = var * bessel(number_of_values(parts[0], counted)).astype(wide) if statistics.unbiased else var
                for statistic, now in zip(kept, (mean, spread), strict=True):
                    statistic.value = self.momentum * statistic.value.astype(wide) + (1 - self.momentum) * now
        return normalise_parts(parts, mean, var, scale, bias, self.epsilon)


def normalise_parts(
    parts: Sequence[jax.Array], mean: jax.Array, var: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float
) -> list[jax.Array]:
    """An array in parts along its last axis, normalised by given statistics `[sum of C_i]`; see `BatchNorm`."""
    wide, sizes = at_least_float32(parts[0].dtype), [part.shape[-1] for part in parts]
    factor = scale.astype(wide) * lax.rsqrt(var.astype(wide) + epsilon)
    summand = bias.astype(wide) - factor * mean.astype(wide)
    ends = [sum(sizes[:i]) for i in range(1, len(sizes))]
    dtype = jnp.promote_types(parts[0].dtype, jnp.promote_types(scale.dtype, bias.dtype))
    each = zip(parts, jnp.split(factor, ends), jnp.split(summand, ends), strict=True)
    return [_affine(*part, wide).astype(dtype) for part in each]


def moments(x: jax.Array, mask: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance of each channel of `[batch, ..., C]`, `[C]` each, in at least float32; with a mask, of
    the samples where it is 1 (see `BatchNorm`), and zeros where it is all 0."""
    values, axes = x.astype(at_least_float32(x.dtype)), tuple(range(x.ndim - 1))
    if mask is None:
        mean, square = values.mean(axes), (values * values).mean(axes)
    else:
        real = of_samples(mask, x).astype(values.dtype)
        count = jnp.maximum(number_of_values(x, mask), 1)
        mean, square = (jnp.sum(real * one, axes) / count for one in (values, values * values))
    # Rounding can make the difference negative.
    return mean, jnp.maximum(square - mean * mean, 0)


def of_samples(mask: jax.Array, x: jax.Array) -> jax.Array:
    """The mask `[m]` of the samples of `x`, `[k m, ..., C]`, as `[k m, 1, ..., 1]`."""
    return jnp.tile(mask, len(x) // len(mask)).reshape(-1, *(1,) * (x.ndim - 1))


def bessel(count: jax.Array) -> jax.Array:
    """`n / (n - 1)`, the unbiased variance of n values over the biased one; 1 for a single value."""
    return count / jnp.maximum(count - 1, 1)


def number_of_values(x: jax.Array, mask: jax.Array | None) -> jax.Array:
    """The number of values per channel of `[batch, ..., C]`, float32; with a mask, of the samples where it is 1."""
    if mask is None:
        return jnp.float32(x.size // x.shape[-1])
    return jnp.sum(mask.astype(jnp.float32)) * (x.size // x.shape[-1] // len(mask))


def with_statistics(statistics: BatchStatistics) -> AbstractContextManager[None]:
    """All BatchNorm layers that are called within take their statistics in this way."""
    return nn.intercept_methods(giving(statistics=statistics))


def with_mask(mask: jax.Array) -> AbstractContextManager[None]:
    """All BatchNorm layers that are called within know which samples fill up the batch, see `BatchNorm`."""
    return nn.intercept_methods(giving(mask=mask))


def recording_moments(
    found: MutableMapping[str, tuple[jax.Array, jax.Array]], mask: jax.Array | None = None
) -> AbstractContextManager[None]:
    """All BatchNorm layers that are called within, ours and Flax's, put mean and biased variance of their input into
    `found`, `[C]` each, by the layer's path; with a mask, those of the samples where it is 1 (see `moments`). What a
    layer computes does not change. `found` is valid in the trace, or the call, in which the network is applied."""

    def intercept(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        layer = context.module
        if isinstance(layer, BatchNorm | nn.BatchNorm) and context.method_name == "__call__":
            given = args[0] if args else kwargs["parts" if isinstance(layer, BatchNorm) else "x"]
            parts = given if isinstance(given, list | tuple) else [given]
            mean, var = zip(*(moments(part, mask) for part in parts), strict=True)
            found["/".join(layer.path)] = (jnp.concatenate(mean), jnp.concatenate(var))
        return call(*args, **kwargs)

    return nn.intercept_methods(intercept)


def giving(**more: Any) -> Callable[..., Any]:
    """An interceptor for Flax that calls BatchNorm layers with further arguments."""

    def intercept(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        is_layer = isinstance(context.module, BatchNorm) and context.method_name == "__call__"
        return call(*args, **{**more, **kwargs}) if is_layer else call(*args, **kwargs)

    return intercept


def _affine(x: jax.Array, factor: jax.Array, summand: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`factor * x + summand`, one of each per channel."""
    shape = (1,) * (x.ndim - 1) + (-1,)
    return x.astype(dtype) * factor.reshape(shape) + summand.reshape(shape)


def unit_length(x: jax.Array) -> jax.Array:
    """Vectors along the last axis divided by their lengths, in at least float32; a zero stays zero."""
    wide = x.astype(at_least_float32(x.dtype))
    return wide * lax.rsqrt(jnp.maximum(jnp.sum(jnp.square(wide), axis=-1, keepdims=True), SHORTEST_SQUARED))
