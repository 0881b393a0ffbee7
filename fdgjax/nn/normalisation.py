"""BatchNorm as one factor and one summand per channel, which never writes its input centred."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn.geometry import at_least_float32


class BatchNorm(nn.Module):
    """`flax.linen.BatchNorm` over the last axis: the same variables (`scale` and `bias` in `params`; `mean` and the
    biased `var` in `batch_stats`), the same results up to rounding and the same derivatives, those through the running
    statistics included.

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
    def __call__(self, parts: Sequence[jax.Array]) -> list[jax.Array]:
        """Normalises an array that comes in parts along its last axis, and returns it in parts, so that it is
        concatenated, and written, only once, after the activation.

        `[batch, ..., C_i]` for each part -> the same shapes; variables `[sum of C_i]`.
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
        if self.use_running_average:
            mean, var = (statistic.value.astype(wide) for statistic in kept)
        else:
            mean, var = (jnp.concatenate(both) for both in zip(*map(moments, parts), strict=True))
            if not self.is_initializing():
                for statistic, now in zip(kept, (mean, var), strict=True):
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


def moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance of each channel of `[batch, ..., C]`, `[C]` each, in at least float32."""
    values, axes = x.astype(at_least_float32(x.dtype)), tuple(range(x.ndim - 1))
    mean, square = values.mean(axes), (values * values).mean(axes)
    # Rounding can make the difference negative.
    return mean, jnp.maximum(square - mean * mean, 0)


def _affine(x: jax.Array, factor: jax.Array, summand: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`factor * x + summand`, one of each per channel."""
    shape = (1,) * (x.ndim - 1) + (-1,)
    return x.astype(dtype) * factor.reshape(shape) + summand.reshape(shape)
