"""Heads on a network's last outputs: none, a classifier of a random representation (FedSR), or a projection for
self-supervised learning.

A head is an entry of `HEADS`, `head(network, classes, width) -> module`; `network(outputs)` makes the backbone with
this number of outputs instead of its logits, so that any backbone works.
"""

from collections.abc import Callable, Mapping
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.models.adapter import adapter_head
from fdgjax.models.styles import StyledHead
from fdgjax.models.units import norm, widen
from fdgjax.nn import Dense

Head = Callable[[Callable[[int], nn.Module], int, float], nn.Module]


class GaussianClassifier(nn.Module):
    """A linear classifier of z ~ N(mu, diag(sigma^2)), and a reference distribution of z for each class.

    z is sampled in training and equals its mean otherwise. The reference distributions `N(reference_mean[y],
    softplus(reference_deviation[y]))` and `scale` are variables that only the objective uses (`fdgjax.objectives`);
    they start as N(0, softplus(1)) and 1 (Nguyen et al., official code).

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

    The network's variables keep their paths; those of the classifier are in `gaussian`. It sows z as `features`, and
    `mean` and `deviation`.

    Attributes:
      network: gives the outputs `[batch, 2 m]`.
      classes: number of logits.
    """

    network: nn.Module
    classes: int

    def setup(self) -> None:
        """Shares the network's scope, so that the wrapper does not appear in paths of variables."""
        nn.share_scope(self, self.network)
        self.gaussian = GaussianClassifier(self.classes)

    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Images -> logits `[batch, classes]`."""
        logits, outputs = self.gaussian(self.network(x, train=train), train=train)
        for name, value in outputs.items():
            self.sow("intermediates", name, value)
        return logits


def linear(network: Callable[[int], nn.Module], classes: int, width: float) -> nn.Module:
    """The network itself: its outputs are the logits."""
    del width
    return network(classes)


def gaussian_head(network: Callable[[int], nn.Module], classes: int, width: float) -> GaussianHead:
    """z of dimension 512 (Nguyen et al., official code) times the network's width."""
    return GaussianHead(network(2 * widen(512, width)), classes)


class Projector(nn.Module):
    """The part of a projector after its hidden layer, and an optional predictor.

        z = linear(ReLU(BN(h))),    p = linear(ReLU(BN(linear(z))))

    Variables: `bn` and `out`, and of the predictor `predictor_in`, `predictor_bn` and `predictor_out`.

    Attributes:
      features: dimension of z and p.
      predictor: hidden units of the predictor; 0 for none.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
    """

    features: int
    predictor: int = 0
    init_name: str = "torch"

    @nn.compact
    def __call__(self, hidden: jax.Array, train: bool = False) -> tuple[jax.Array, dict[str, jax.Array]]:
        """`[batch, hidden]` -> z `[batch, features]`, and p as `prediction` if there is a predictor."""
        linear = partial(Dense, init_name=self.init_name)
        z: jax.Array = linear(self.features, name="out")(nn.relu(norm(hidden, train, "bn")))
        if not self.predictor:
            return z, {}
        inner = nn.relu(norm(linear(self.predictor, name="predictor_in")(z), train, "predictor_bn"))
        return z, {"prediction": linear(self.features, name="predictor_out")(inner)}


class SimSiamProjector(nn.Module):
    """The part of SimSiam's projector after its first linear layer, and its predictor, as in the official code.

        z = BN(linear(ReLU(BN(linear(ReLU(BN(h)))))))  without biases, the last BN without scale and bias,
        p = linear(ReLU(BN(linear(z))))

    Variables: `bn`, `middle`, `middle_bn`, `out`, `out_bn` (statistics only), and those of the predictor as in
    `Projector`. The second linear layer has as many outputs as the first one.

    Attributes:
      features: dimension of z and p.
      predictor: hidden units of the predictor.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
    """

    features: int
    predictor: int
    init_name: str = "torch"

    @nn.compact
    def __call__(self, hidden: jax.Array, train: bool = False) -> tuple[jax.Array, dict[str, jax.Array]]:
        """`[batch, hidden]` -> z `[batch, features]`, and p as `prediction`."""
        linear = partial(Dense, init_name=self.init_name)
        middle = linear(hidden.shape[-1], use_bias=False, name="middle")(nn.relu(norm(hidden, train, "bn")))
        out = linear(self.features, use_bias=False, name="out")(nn.relu(norm(middle, train, "middle_bn")))
        z = norm(out, train, "out_bn", affine=False)
        inner = linear(self.predictor, use_bias=False, name="predictor_in")(z)
        prediction = linear(self.features, name="predictor_out")(nn.relu(norm(inner, train, "predictor_bn")))
        return z, {"prediction": prediction}


class ProjectionHead(nn.Module):
    """A network whose last layer is the first layer of a projector, for self-supervised learning.

    The network's variables keep their paths; those of the projector are in `projector`. z replaces the logits; the
    features are still the input of the network's last layer; the prediction is sown.

    Attributes:
      network: gives the hidden layer of the projector.
      features: dimension of z.
      predictor: hidden units of the predictor; 0 for none.
      kind: the projector.
    """

    network: nn.Module
    features: int
    predictor: int = 0
    kind: Callable[[int, int], nn.Module] = Projector

    def setup(self) -> None:
        """Shares the network's scope, so that the wrapper does not appear in paths of variables."""
        nn.share_scope(self, self.network)
        self.projector = self.kind(self.features, self.predictor)

    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Images -> z `[batch, features]`."""
        z, outputs = self.projector(self.network(x, train=train), train=train)
        for name, value in outputs.items():
            self.sow("intermediates", name, value)
        return z


def projection(network: Callable[[int], nn.Module], classes: int, width: float) -> ProjectionHead:
    """4096 hidden units and z of dimension 2048 (FedGaLA, official code), times the network's width."""
    del classes
    return ProjectionHead(network(widen(4096, width)), widen(2048, width))


def prediction(network: Callable[[int], nn.Module], classes: int, width: float) -> ProjectionHead:
    """`projection` with a predictor as wide as its hidden layer (BYOL's and SimSiam's)."""
    del classes
    return ProjectionHead(network(widen(4096, width)), widen(2048, width), widen(4096, width))


def simsiam_head(network: Callable[[int], nn.Module], classes: int, width: float) -> ProjectionHead:
    """SimSiam's head: 512 hidden units, as many as ResNet-18 has features, z of dimension 2048 and 512 hidden units in
    the predictor (Chen and He, official code; FedGaLA, official code), times the network's width."""
    del classes
    return ProjectionHead(network(widen(512, width)), widen(2048, width), widen(512, width), SimSiamProjector)


def moco_head(network: Callable[[int], nn.Module], classes: int, width: float) -> nn.Module:
    """MoCo's head: the network's last linear layer gives z of dimension 2048 (FedGaLA, official code), times the
    network's width."""
    del classes
    return network(widen(2048, width))


def styled(network: Callable[[int], nn.Module], classes: int, width: float) -> StyledHead:
    """The network itself, whose styles an objective can share and explore."""
    del width
    return StyledHead(network(classes), size=0)


def highlighted(network: Callable[[int], nn.Module], classes: int, width: float) -> StyledHead:
    """`styled` with an attention of dimension 30 (Park et al., official code)."""
    del width
    return StyledHead(network(classes))


HEADS: Mapping[str, Head] = {
    "linear": linear,
    "gaussian": gaussian_head,
    "projection": projection,
    "prediction": prediction,
    "simsiam": simsiam_head,
    "moco": moco_head,
    "styled": styled,
    "highlighted": highlighted,
    "adapter": adapter_head,
}
"""Heads by name."""
