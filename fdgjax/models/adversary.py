"""FedADG's two networks: a generator of features of a class, and a discriminator of features by their class (Zhang et
al., 2021)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.nn import Dense


class Adversary(nn.Module):
    """Generator and discriminator, which know the class, y `[batch, classes]`.

    Attributes:
      features: m, the size of a feature vector.
      hidden: units of each hidden layer, and the size of the discriminator's projection.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
    """

    features: int
    hidden: int
    init_name: str = "torch"

    def setup(self) -> None:
        """The layers, by the network they are of."""
        dense = lambda size, bias=True: Dense(size, use_bias=bias, init_name=self.init_name)  # noqa: E731
        self.generator_in, self.generator_out = dense(self.hidden), dense(self.features)
        self.projection, self.discriminator_in = dense(self.hidden, bias=False), dense(self.hidden)
        self.discriminator_out = dense(1)

    def generate(self, noise: jax.Array, y: jax.Array) -> jax.Array:
        """Features `ReLU(linear(LeakyReLU(linear([noise, y]))))`, `[batch, m]`, from noise `[batch, n]`."""
        hidden = nn.leaky_relu(self.generator_in(jnp.concatenate([noise, y], axis=1)))
        return nn.relu(self.generator_out(hidden))

    def judge(self, features: jax.Array, y: jax.Array) -> jax.Array:
        """How probably features `[batch, m]` are generated, `sigmoid(linear(LeakyReLU(linear([P features, y]))))`,
        `[batch]`; P is linear."""
        projected = jnp.concatenate([self.projection(features), y], axis=1)
        return nn.sigmoid(self.discriminator_out(nn.leaky_relu(self.discriminator_in(projected))))[:, 0]

    def __call__(self, noise: jax.Array, y: jax.Array) -> jax.Array:
        """The judgement of generated features."""
        return self.judge(self.generate(noise, y), y)
