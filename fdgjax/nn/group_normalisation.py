"""GroupNorm as one factor and one summand per sample and channel, which never writes its input centred."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn.geometry import at_least_float32


class GroupNorm(nn.Module):
    """`flax.linen.GroupNorm` over all axes but the first, in groups of the last: the same variables (`scale`, `bias`),
    the same results up to rounding and the same derivatives.

        a = scale / sqrt(var + epsilon)          y = a x + (bias - a mean)

    The statistics of a group of channels are made from sums over each channel's pixels: a sum along pixels reads whole
    vectors of channels, one over a group's few channels as well adds single numbers. As in `BatchNorm`, XLA fuses the
    layer into what follows and keeps nothing for the gradient but `x`. Means and variances, `E[x^2] - E[x]^2` as in
    Flax, are computed in float32 or better.

    Attributes:
      groups: number of groups, a divisor of the number of channels.
      epsilon: added to variances.
    """

    groups: int
    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[batch, ..., C]` -> `[batch, ..., C]`."""
        wide, batch, channels = at_least_float32(x.dtype), x.shape[0], x.shape[-1]
        scale, bias = (
            self.param(name, start, (channels,))
            for name, start in (("scale", nn.initializers.ones), ("bias", nn.initializers.zeros))
        )
        a, b = (one.astype(wide).reshape(1, 1, channels) for one in (scale, bias))
        values = x.astype(wide).reshape(batch, math.prod(x.shape[1:-1]), channels)

        def of_groups(moment: jax.Array) -> jax.Array:
            means = moment.reshape(batch, self.groups, channels // self.groups).mean(-1, keepdims=True)
            return jnp.broadcast_to(means, (batch, self.groups, channels // self.groups)).reshape(batch, 1, channels)

        mean, square = of_groups(values.mean(1)), of_groups((values * values).mean(1))
        # Rounding can make the difference negative.
        factor = a * lax.rsqrt(jnp.maximum(square - mean * mean, 0) + self.epsilon)
        result = values * factor + (b - factor * mean)
        return result.reshape(x.shape).astype(jnp.promote_types(x.dtype, scale.dtype))
