"""FedSR's regularisers: the representation's length (L2R), and its divergence from the class's reference (CMI)."""

import jax
import jax.numpy as jnp

from fdgjax.objectives.cross_entropy import masked_mean


def mean_squared_length(z: jax.Array, mask: jax.Array) -> jax.Array:
    """`mean_i |z_i|^2` over the unmasked samples; z `[batch, m]`, mask `[batch]`."""
    return masked_mean(jnp.sum(jnp.square(z), axis=1), mask)


def mean_length(z: jax.Array, mask: jax.Array) -> jax.Array:
    """`mean_i |z_i|` over the unmasked samples; without a gradient where z is zero."""
    squared = jnp.sum(jnp.square(z), axis=1)
    return masked_mean(jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1)), 0), mask)


def gaussian_divergence(
    mean: jax.Array, deviation: jax.Array, other_mean: jax.Array, other_deviation: jax.Array
) -> jax.Array:
    """`KL(N(mu, diag(sigma^2)) || N(nu, diag(tau^2)))` of each row, `[batch]`:

        sum_j log(tau_j / sigma_j) + (sigma_j^2 + (mu_j - nu_j)^2) / (2 tau_j^2) - 1/2

    Args:
      mean, deviation, other_mean, other_deviation: mu, sigma, nu and tau, `[batch, m]`; deviations positive.
    """
    spread = (jnp.square(deviation) + jnp.square(mean - other_mean)) / (2 * jnp.square(other_deviation))
    return jnp.sum(jnp.log(other_deviation) - jnp.log(deviation) + spread - 0.5, axis=1)
