"""FedFA's feature augmentation: channel statistics drawn around the measured ones, with a larger variance where clients
differ (Zhou & Konukoglu, "FedFA: Federated feature augmentation", ICLR 2023, and its official code)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.nn.geometry import at_least_float32


class FeatureAugmentation(nn.Module):
    """In training, with probability p for the whole batch,

        x -> sigma' (x - mu) / sigma + mu'
        mu' ~ N(mu, (gamma_mu + 1) var_batch(mu)),  sigma' ~ N(sigma, (gamma_sigma + 1) var_batch(sigma))
        gamma = C s / sum(s),  s = 1 / (1 + 1 / v)

    with mu and sigma each sample's mean and standard deviation of each of C channels over its pixels, and v the
    variance *across clients* of those statistics, which the server sends. Gradients go through mu, sigma and their
    variances, as in the official code. In evaluation, and for inputs other than images, the identity.

    Variables, all in `batch_stats` with shape `[C]`:
    - mean, std: running means of the batch's mean of mu and of sigma, by which the server compares clients. They are
      updated whenever features are augmented (the official code) and start at 0 and 1.
    - mean_variance, std_variance: v, 1 until the server sets it; never changed here.

    Batch variances are the biased ones, so that a batch of one is defined (PyTorch's would not be).

    Attributes:
      probability: p.
      momentum: of the running means.
      epsilon: added to all variances.
    """

    probability: float = 0.5
    momentum: float = 0.99
    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, C]` -> the same shape; draws from the rng `dropout` when `train`."""
        if x.ndim != 4:
            return x
        starts = {"mean": jnp.zeros, "std": jnp.ones, "mean_variance": jnp.ones, "std_variance": jnp.ones}
        kept = {name: self.variable("batch_stats", name, start, x.shape[-1:]) for name, start in starts.items()}
        if not train:
            return x
        dtype, x = x.dtype, x.astype(at_least_float32(x.dtype))
        chance, *noise = jax.random.split(self.make_rng("dropout"), 3)
        happens = jax.random.bernoulli(chance, self.probability)
        measured = {"mean": x.mean((1, 2)), "std": jnp.sqrt(x.var((1, 2)) + self.epsilon)}
        drawn = {}
        for (name, statistic), key in zip(measured.items(), noise, strict=True):
            drawn[name] = self._draw(statistic, kept[f"{name}_variance"].value, key)
            if not self.is_initializing():
                moved = self.momentum * kept[name].value + (1 - self.momentum) * statistic.mean(0)
                kept[name].value = jax.lax.stop_gradient(jnp.where(happens, moved, kept[name].value))
        normalised = (x - over_pixels(measured["mean"])) / over_pixels(measured["std"])
        augmented = over_pixels(drawn["std"]) * normalised + over_pixels(drawn["mean"])
        return jnp.where(happens, augmented, x).astype(dtype)

    def _draw(self, statistic: jax.Array, across_clients: jax.Array, key: jax.Array) -> jax.Array:
        """Each sample's new value of a statistic, `[batch, C]`."""
        share = 1 / (1 + 1 / (across_clients + self.epsilon))
        significance = share.size * share / share.sum()
        variance = (significance + 1) * (statistic.var(0) + self.epsilon)
        return statistic + jnp.sqrt(variance)[None] * jax.random.normal(key, statistic.shape, statistic.dtype)


def over_pixels(statistic: jax.Array) -> jax.Array:
    """`[batch, C]` -> `[batch, 1, 1, C]`."""
    return statistic[:, None, None]
