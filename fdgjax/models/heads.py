"""What makes logits of a network's last outputs: nothing more, or a classifier of a random representation (FedSR).

A head is an entry of `HEADS`, `head(network, classes, width) -> module`; `network(outputs)` makes the backbone with so
many outputs in the place of its logits, so that any backbone will do.
"""

from collections.abc import Callable, Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.models.units import widen
from fdgjax.nn import Dense

Head = Callable[[Callable[[int], nn.Module], int, float], nn.Module]


class GaussianClassifier(nn.Module):
    """A linear classifier of z ~ N(mu, diag(sigma^2)), and a reference distribution of z for each class.

    z is drawn in training and is its mean otherwise. The reference distributions `N(reference_mean[y],
    softplus(reference_deviation[y]))` and `scale` are variables that only an objective looks at (`fdgjax.objectives`);
    they begin as N(0, softplus(1)) and 1 (Nguyen et al., official code).

    Attributes:
      classes: number of logits.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`, for the classifier.
    """

    classes: int
    init_name: str = "torch"

    @nn.compact
    def __call__(self, outputs: jax.Array, train: bool = False) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Outputs `[batch, 2 m]` -> logits `[batch, classes]`, and z, mu and sigma, `[batch, m]` each: mu is the first
        half of the outputs, sigma softplus of the second. Draws from the rng `dropout` when `train`."""
        mean, raw = jnp.split(outputs, 2, axis=-1)
        z, deviation = mean, jax.nn.softplus(raw)
        if train:
            z = mean + deviation * jax.random.normal(self.make_rng("dropout"), mean.shape, mean.dtype)
        for name, start in (("reference_mean", nn.initializers.zeros), ("reference_deviation", nn.initializers.ones)):
            self.param(name, start, (self.classes, mean.shape[-1]))
        self.param("scale", nn.initializers.ones, ())
        logits = Dense(self.classes, init_name=self.init_name, name="classifier")(z)
        return logits, {"features": z, "mean": mean, "deviation": deviation}


class GaussianHead(nn.Module):
    """A network with a `GaussianClassifier`.

    The network's variables keep their paths; those of the classifier are in `gaussian`. z is sown as the features, and
    so are `mean` and `deviation`.

    Attributes:
      network: gives the outputs `[batch, 2 m]`.
      classes: number of logits.
    """

    network: nn.Module
    classes: int

    def setup(self) -> None:
        """Both in one scope, so that no path tells of the wrapping."""
        nn.share_scope(self, self.network)
        self.gaussian = GaussianClassifier(self.classes)

    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Images -> logits `[batch, classes]`."""
        logits, said = self.gaussian(self.network(x, train=train), train=train)
        for name, value in said.items():
            self.sow("intermediates", name, value)
        return logits


def linear(network: Callable[[int], nn.Module], classes: int, width: float) -> nn.Module:
    """The network itself: its outputs are the logits."""
    del width
    return network(classes)


def gaussian(network: Callable[[int], nn.Module], classes: int, width: float) -> GaussianHead:
    """z of 512 numbers (Nguyen et al., official code), times the network's width."""
    return GaussianHead(network(2 * widen(512, width)), classes)


HEADS: Mapping[str, Head] = {"linear": linear, "gaussian": gaussian}
"""Heads by name."""
