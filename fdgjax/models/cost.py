"""The cost of a model: its parameters, the bytes it sends, the operations per image."""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.nn import Conv, ConvTranspose, Dense
from fdgjax.utils.random import any_key
from fdgjax.utils.variables import bytes_of


class Cost(NamedTuple):
    """A model's cost, as counted in FDSE's Table 4.

    parameters: their number.
    bytes: of parameters and statistics, which one client sends if all variables are shared.
    flops: multiply-adds (one multiplication and one addition are one operation) of one image's forward pass through
      convolutions, linear layers and attention. Biases, BatchNorm, activations and pooling, a few thousandths, are not
      included. A training step takes about three times as much.
    """

    parameters: int
    bytes: int
    flops: int

    def __str__(self) -> str:
        return (
            f"{self.parameters / 1e6:,.2f} M parameters, {self.bytes / 2**20:,.2f} MiB, "
            f"{self.flops / 1e6:,.1f} M multiply-adds per image"
        )


WEIGHTED = (Conv, Dense, nn.Conv, nn.Dense, nn.DenseGeneral)
"""Layers that apply their whole kernel at each output position."""
TRANSPOSED = (ConvTranspose, nn.ConvTranspose)
"""Layers that apply their whole kernel at each input position."""


def cost(module: nn.Module, image_shape: Sequence[int]) -> Cost:
    """The cost of a Flax module for images `(H, W, channels)`, from the layers it calls; only shapes are computed.

    XLA's own cost analysis counts a convolution's lowering, which differs by platform.
    """
    counts: list[int] = []

    def count(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        y = call(*args, **kwargs)
        if context.method_name == "__call__":
            given = inspect.signature(context.orig_method).bind(*args, **kwargs).arguments
            counts.append(multiply_adds(context.module, given, y))
        return y

    def forward(key: jax.Array) -> Any:
        with nn.intercept_methods(count):
            return module.init(key, jnp.zeros((1, *image_shape), jnp.float32), train=False)

    variables = jax.eval_shape(forward, any_key())
    return Cost(
        parameters=sum(leaf.size for leaf in jax.tree.leaves(variables["params"])),
        bytes=bytes_of(variables),
        flops=sum(counts),
    )


def multiply_adds(layer: nn.Module, given: Mapping[str, Any], y: Any) -> int:
    """The multiply-adds of one call of the layer itself; 0 for a module that only calls others.

    Args:
      layer: the module.
      given: what it was called with, by the names of its arguments.
      y: what it returned.
    """
    if isinstance(layer, nn.MultiHeadDotProductAttention):
        queries = given["inputs_q"]
        keys = next((given[name] for name in ("inputs_kv", "inputs_k") if given.get(name) is not None), queries)
        # Queries with keys, and their weights with values; the four linear layers count themselves.
        return 2 * math.prod(queries.shape[:-1]) * keys.shape[-2] * (layer.qkv_features or queries.shape[-1])
    if not isinstance(layer, WEIGHTED + TRANSPOSED):
        return 0
    kernel: int = layer.variables["params"]["kernel"].size
    if isinstance(layer, TRANSPOSED):
        (x,) = given.values()
        return x.size // x.shape[-1] * kernel
    features = layer.features if isinstance(layer.features, Sequence) else (layer.features,)
    return y.size // math.prod(features) * kernel
