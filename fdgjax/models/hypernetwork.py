"""The hypernetwork: from a client's embedding to the parameters of its model, for any Flax model.

    embedding [e] -> 4 x (linear 50, LeakyReLU between) -> one linear head per layer of the client model

hFedF v2, Table 8; after Ha et al., "HyperNetworks", 2016, and Shamsian et al., "Personalized federated learning using
hypernetworks", 2021 (pFedHN).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import traverse_util

from fdgjax.nn import Dense
from fdgjax.utils.registry import lookup

Params = dict[str, Any]


class LeafTemplate(NamedTuple):
    """A leaf's name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: Any


class LayerTemplate(NamedTuple):
    """One layer of the client model: its path and its leaves (kernel, bias, ...)."""

    path: tuple[str, ...]
    leaves: tuple[LeafTemplate, ...]

    @property
    def size(self) -> int:
        """The number of the layer's parameters."""
        return sum(math.prod(leaf.shape) for leaf in self.leaves)


def find_layers(params: Params) -> tuple[LayerTemplate, ...]:
    """The layers of a parameter tree: leaves that share a parent belong together."""
    layers: dict[tuple[str, ...], list[LeafTemplate]] = {}
    for path, leaf in sorted(traverse_util.flatten_dict(params).items()):
        layers.setdefault(path[:-1], []).append(LeafTemplate(path[-1], tuple(leaf.shape), leaf.dtype))
    return tuple(LayerTemplate(path, tuple(leaves)) for path, leaves in layers.items())


class Theta(NamedTuple):
    """A hypernetwork's parameters, or values of the same structure: the hidden layers' (`trunk`) and the heads'."""

    trunk: Any
    heads: Any

    @property
    def whole(self) -> Params:
        """As one tree."""
        return {**self.trunk, **self.heads}


class HyperNetwork(nn.Module):
    """`h(theta, v)`: an embedding `[e]` to a parameter tree.

    layers: the client model's layers, from `find_layers`; one head each.
    hidden, depth: width and number of the hidden linear layers.
    init_name: entry of `fdgjax.nn.INITIALISATIONS`.
    """

    layers: tuple[LayerTemplate, ...]
    hidden: int = 50
    depth: int = 4
    init_name: str = "torch"

    def setup(self) -> None:
        """The layers, by the names of their parameters."""
        dense = partial(Dense, init_name=self.init_name)
        for name in hidden_names(self.depth):
            setattr(self, name, dense(self.hidden))
        for name, layer in zip(head_names(self.layers), self.layers, strict=True):
            setattr(self, name, dense(layer.size))

    def __call__(self, embedding: jax.Array) -> Params:
        """The client model's parameters."""
        return self.heads(self.features(embedding))

    def features(self, embedding: jax.Array) -> jax.Array:
        """The heads' inputs, `[hidden]`."""
        first, *others = hidden_names(self.depth)
        features = getattr(self, first)(embedding)
        for name in others:
            features = getattr(self, name)(nn.leaky_relu(features))
        return features

    def heads(self, features: jax.Array) -> Params:
        """The client model's parameters from the features, by one linear head with a bias for each layer."""
        leaves: dict[tuple[str, ...], jax.Array] = {}
        for name, layer in zip(head_names(self.layers), self.layers, strict=True):
            leaves.update(split_layer(layer, getattr(self, name)(features)))
        return traverse_util.unflatten_dict(leaves)

    def split(self, theta: Params) -> Theta:
        """`theta`, or its gradient, split into hidden layers and heads."""
        trunk = hidden_names(self.depth)
        return Theta({name: theta[name] for name in trunk}, {n: theta[n] for n in theta if n not in trunk})


def hidden_names(depth: int) -> list[str]:
    """The hidden layers' names in the hypernetwork's parameter tree."""
    return [f"hidden_{i}" for i in range(depth)]


def head_names(layers: Sequence[LayerTemplate]) -> list[str]:
    """The heads' names in the hypernetwork's parameter tree; the index keeps them unique."""
    return [f"head_{i}_{'_'.join(layer.path)}" for i, layer in enumerate(layers)]


def split_layer(layer: LayerTemplate, flat: jax.Array) -> dict[tuple[str, ...], jax.Array]:
    """A head's output `[size]` as the layer's leaves by path."""
    leaves, start = {}, 0
    for leaf in layer.leaves:
        size = math.prod(leaf.shape)
        leaves[(*layer.path, leaf.name)] = flat[start : start + size].reshape(leaf.shape).astype(leaf.dtype)
        start += size
    return leaves


def join_layer(layer: LayerTemplate, params: Params) -> jax.Array:
    """The inverse of `split_layer`: a layer's leaves as one vector `[size]`."""
    leaves = traverse_util.flatten_dict(params)
    return jnp.concatenate([leaves[(*layer.path, leaf.name)].ravel() for leaf in layer.leaves])


def from_framework(theta: Params, layers: Sequence[LayerTemplate], client: Params) -> Params:
    """theta as its layers initialise it."""
    del layers, client
    return theta


def from_client_model(theta: Params, layers: Sequence[LayerTemplate], client: Params) -> Params:
    """Head biases are an ordinary initialisation of the client model, and head kernels are scaled by 0.01: every client
    starts near the same ordinary model."""
    heads = {
        name: {"kernel": 0.01 * theta[name]["kernel"], "bias": join_layer(layer, client)}
        for name, layer in zip(head_names(layers), layers, strict=True)
    }
    return theta | heads


class ThetaInit(NamedTuple):
    """How theta starts: the layers' initialisation (`fdgjax.nn.INITIALISATIONS`), and its adjustment."""

    init_name: str
    adjust: Callable[[Params, Sequence[LayerTemplate], Params], Params]


SCHEMES: Mapping[str, ThetaInit] = {
    "torch": ThetaInit("torch", from_framework),
    "flax": ThetaInit("flax", from_framework),
    "model": ThetaInit("torch", from_client_model),
}


def init_hypernetwork(
    key: jax.Array, network: HyperNetwork, embedding_dim: int, client: Params, initialisation: str
) -> Params:
    """Initial `theta`.

    Args:
      key: random key.
      network: the hypernetwork.
      embedding_dim: e.
      client: an ordinary initialisation of the client model's parameters.
      initialisation: `torch` (kernels and biases uniform in +-1/sqrt(fan_in)), `flax` (lecun-normal kernels, zero
        biases) or `model` (head biases from `client`). The paper states none and it matters (docs/deviations.md).

    Raises:
      UserError: unknown initialisation.
    """
    scheme = lookup("initialisation", initialisation, SCHEMES)
    theta = network.clone(init_name=scheme.init_name).init(key, jnp.zeros(embedding_dim))["params"]
    return scheme.adjust(theta, network.layers, client)
