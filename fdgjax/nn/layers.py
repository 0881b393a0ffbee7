"""Flax modules on the fast convolution, and the two initialisations that the literature's results are based on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen import dtypes
from jax.nn import initializers

from fdgjax.nn.convolution import conv2d
from fdgjax.nn.windows import Padding, Size
from fdgjax.utils.registry import lookup

Initializer = Callable[..., jax.Array]


class Initialisation(NamedTuple):
    """How a layer's parameters start, given its fan-in (the number of inputs that feed one output)."""

    kernel: Callable[[int], Initializer]
    bias: Callable[[int], Initializer]


def torch_uniform(fan_in: int) -> Initializer:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default for kernels *and* biases of linear and
    convolution layers."""

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        bound = fan_in**-0.5
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


INITIALISATIONS: Mapping[str, Initialisation] = {
    "torch": Initialisation(torch_uniform, torch_uniform),
    "flax": Initialisation(lambda fan_in: initializers.lecun_normal(), lambda fan_in: initializers.zeros),
}


def initialisation(name: str) -> Initialisation:
    """The entry of `INITIALISATIONS` called `name`; a `UserError` where there is none."""
    return lookup("initialisation", name, INITIALISATIONS)


class Conv(nn.Module):
    """`flax.linen.Conv` for NHWC images (same parameter names, shapes and numbers) on `fdgjax.nn.conv2d`.

    Attributes:
      features: output channels.
      kernel_size: height and width.
      strides: one number, or one per axis.
      padding: as for `conv2d`.
      feature_group_count: groups of channels convolved alone.
      use_bias: whether to add a bias.
      init_name: name in `INITIALISATIONS` for kernel and bias.
      kernel_init: an initializer instead of the named one.
      bias_init: an initializer instead of the named one.
      dtype: of the computation; None infers it from inputs and parameters.
      param_dtype: of the parameters.
    """

    features: int
    kernel_size: Sequence[int]
    strides: Size = 1
    padding: Padding = "SAME"
    feature_group_count: int = 1
    use_bias: bool = True
    init_name: str = "torch"
    kernel_init: Initializer | None = None
    bias_init: Initializer | None = None
    dtype: Any = None
    param_dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[batch, H, W, in]` -> `[batch, H', W', features]`."""
        shape = (*self.kernel_size, x.shape[-1] // self.feature_group_count, self.features)
        kernel, bias = _parameters(self, shape, shape[0] * shape[1] * shape[2])
        x, kernel, bias = dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
        y = conv2d(x, kernel, strides=self.strides, padding=self.padding, groups=self.feature_group_count)
        return y if bias is None else y + bias[None, None, None]


class ConvTranspose(nn.Module):
    """A transposed convolution whose stride is its window, so that windows do not overlap: one matrix
    product.

        y[b, i*h + u, j*w + v, o] = sum_c x[b, i, j, c] kernel[u, v, c, o] + bias[o]

    PyTorch's `ConvTranspose2d(in, features, window, stride=window)` with its kernel in the order [h, w, in,
    out], and its default initialisation, for which fan_in is h * w * features.
    """

    features: int
    window: Sequence[int]
    use_bias: bool = True
    init_name: str = "torch"
    kernel_init: Initializer | None = None
    bias_init: Initializer | None = None
    dtype: Any = None
    param_dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[batch, H, W, in]` -> `[batch, H*h, W*w, features]`."""
        height, width = self.window
        shape = (height, width, x.shape[-1], self.features)
        kernel, bias = _parameters(self, shape, height * width * self.features)
        x, kernel, bias = dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
        y = jnp.einsum("bijc,uvco->biujvo", x, kernel)
        y = y.reshape(x.shape[0], x.shape[1] * height, x.shape[2] * width, self.features)
        return y if bias is None else y + bias[None, None, None]


class Dense(nn.Module):
    """`flax.linen.Dense` (same parameter names, shapes and numbers) with a named initialisation, PyTorch's
    by default."""

    features: int
    use_bias: bool = True
    init_name: str = "torch"
    kernel_init: Initializer | None = None
    bias_init: Initializer | None = None
    dtype: Any = None
    param_dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[..., in]` -> `[..., features]`."""
        kernel, bias = _parameters(self, (x.shape[-1], self.features), x.shape[-1])
        x, kernel, bias = dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
        y = x @ kernel
        return y if bias is None else y + bias.reshape((1,) * (y.ndim - 1) + (-1,))


def _parameters(layer: Any, shape: Sequence[int], fan_in: int) -> tuple[jax.Array, jax.Array | None]:
    """The layer's kernel and, where it has one, its bias."""
    named = initialisation(layer.init_name)
    kernel = layer.param("kernel", layer.kernel_init or named.kernel(fan_in), shape, layer.param_dtype)
    if not layer.use_bias:
        return kernel, None
    return kernel, layer.param("bias", layer.bias_init or named.bias(fan_in), shape[-1:], layer.param_dtype)
