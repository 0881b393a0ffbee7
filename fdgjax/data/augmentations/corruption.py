"""Random views of rows of a table and of series, whose numbers have no neighbours: corruption, noise and masks.

Inputs are float32 `[batch, columns]` or `[batch, time, channels]`, standardised, as the engine provides them. A feature
is a column, or a channel at a point in time; columns into which a category was split are features of their own.
"""

import jax
import jax.numpy as jnp

CORRUPTED = 0.6
"""SCARF's corruption rate."""
WEAKLY_CORRUPTED = 0.3
"""The rate of strong views, whose label has to stay what it is."""
DEVIATION = 0.1
MASKED = 0.1


def corrupt(key: jax.Array, inputs: jax.Array, *, probability: float = CORRUPTED) -> jax.Array:
    """SCARF's random feature corruption: each feature of each sample is replaced, with a probability, by the value that
    the feature has in another sample of the batch.

        x~_ij = x_kj  if m_ij,  else x_ij;    m_ij ~ Bernoulli(p),    k != i uniform, for each i and j

    The values of the batch stand for the feature's marginal distribution. The only sample of a batch stays what it is.

    Args:
      key: random key.
      inputs: x, `[batch, ...]`.
      probability: p.

    Bahri, Jiang, Tay and Metzler, "SCARF: Self-supervised contrastive learning using random feature corruption", ICLR
    2022, section 3 and Algorithm 1.
    """
    which_key, other_key = jax.random.split(key)
    count = len(inputs)
    own = jnp.arange(count).reshape(-1, *(1,) * (inputs.ndim - 1))
    others = (own + jax.random.randint(other_key, inputs.shape, 1, max(count, 2))) % count
    replaced = jax.random.bernoulli(which_key, probability, inputs.shape)
    return jnp.where(replaced, jnp.take_along_axis(inputs, others, axis=0), inputs)


def add_noise(key: jax.Array, inputs: jax.Array, *, deviation: float = DEVIATION) -> jax.Array:
    """`x + s e`, e ~ N(0, 1) for each feature; s is a `deviation` in units of standardised inputs."""
    return inputs + deviation * jax.random.normal(key, inputs.shape, inputs.dtype)


def mask(key: jax.Array, inputs: jax.Array, *, probability: float = MASKED) -> jax.Array:
    """Each feature set to 0, the mean of standardised inputs, with a probability."""
    return jnp.where(jax.random.bernoulli(key, probability, inputs.shape), 0, inputs)
