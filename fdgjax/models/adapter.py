"""FedCLIP's adapter between a fixed encoder and fixed embeddings of the classes (Lu, Hu, Wang and Xie, "FedCLIP: Fast
generalization and personalization for CLIP in federated learning", 2023, and its official code)."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.models.stages import with_passages
from fdgjax.nn import Dense, unit_length


class AttentionAdapter(nn.Module):
    """`softmax(W_2 tanh(W_1 f + b_1) + b_2) * f`: attention over the numbers of a feature vector, as many as it has.

    Variables: `inner` and `outer`.

    Attributes:
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
    """

    init_name: str = "torch"

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """`[batch, m]` -> the same shape."""
        size = features.shape[-1]
        inner = jnp.tanh(Dense(size, init_name=self.init_name, name="inner")(features))
        share: jax.Array = jax.nn.softmax(Dense(size, init_name=self.init_name, name="outer")(inner), axis=-1)
        return share * features


class AdapterHead(nn.Module):
    """A network whose last layer sees its features adapted and of length 1, so that the columns of the layer's kernel
    are embeddings of the classes and its logits are cosines times the columns' lengths.

    The network's variables keep their paths; those of the adapter are in `adapter`.

    Attributes:
      network: the network, with a `Passage` before its last layer.
    """

    network: nn.Module

    def setup(self) -> None:
        """Shares the network's scope, so that the wrapper does not appear in paths of variables."""
        nn.share_scope(self, self.network)
        self.adapter = AttentionAdapter()

    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Images or features -> logits `[batch, classes]`."""

        def at_features(x: jax.Array) -> jax.Array:
            return unit_length(self.adapter(x)).astype(x.dtype)

        with with_passages({"features": at_features}):
            y: jax.Array = self.network(x, train=train)
        return y


def adapter_head(network: Callable[[int], nn.Module], classes: int, width: float) -> AdapterHead:
    """A network with an `AttentionAdapter` before its last layer."""
    del width
    return AdapterHead(network(classes))
