"""gPerXAN's assembled normalisation: BatchNorm and InstanceNorm in parallel, combined with learned weights (Le et al.,
"Efficiently assemble normalization layers and regularization for federated domain generalization", CVPR 2024, and its
official code)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.nn import BatchNorm
from fdgjax.nn.geometry import at_least_float32


class InstanceNorm(nn.Module):
    """Each sample's channels normalised by their own mean and biased variance over the pixels, then scaled and shifted.

    Variables: `scale` and `bias`, `[C]`. The same in training and in evaluation, without running statistics.

    Attributes:
      epsilon: added to variances.
    """

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[batch, ..., C]` -> the same shape."""
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        pixels = tuple(range(1, x.ndim - 1))
        wide = x.astype(at_least_float32(x.dtype))
        mean, variance = wide.mean(pixels, keepdims=True), wide.var(pixels, keepdims=True)
        normalised = (wide - mean) * jax.lax.rsqrt(variance + self.epsilon)
        by_channel = (1,) * (x.ndim - 1) + (-1,)
        scale, bias = (one.astype(wide.dtype).reshape(by_channel) for one in (scale, bias))
        return (normalised * scale + bias).astype(x.dtype)


class AssembledNorm(nn.Module):
    """`a BN(x) + (1 - a) IN(x)` with `(a, 1 - a) = softmax(s_bn, s_in)`, initially one half each.

    Variables: `bn` (BatchNorm's, statistics included), `in` (InstanceNorm's), and the scalars `score_bn` and
    `score_in`. A vector has no pixels to normalise over: for `[batch, C]` there is only `bn`.

    Attributes:
      use_running_average: whether BatchNorm normalises by its running statistics instead of the batch's, without
        updating them.
    """

    use_running_average: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[batch, ..., C]` -> the same shape."""
        (batch,) = BatchNorm(self.use_running_average, momentum=0.9, epsilon=1e-5, name="bn")([x])
        if x.ndim < 3:
            return batch
        instance: jax.Array = InstanceNorm(name="in")(x)
        scores = [self.param(f"score_{name}", nn.initializers.ones, ()) for name in ("bn", "in")]
        share = jax.nn.softmax(jnp.stack(scores)).astype(x.dtype)
        return share[0] * batch + share[1] * instance
