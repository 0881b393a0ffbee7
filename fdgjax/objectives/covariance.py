"""UAP's covariance regularisation: uncorrelated features, with the same covariance at the server and every client."""

import jax
import jax.numpy as jnp

from fdgjax.objectives.cross_entropy import masked_mean


def feature_covariance(features: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """The unbiased covariance `sum_i (z_i - mean) (z_i - mean)^T / (n - 1)` of features, `[m, m]`; 0 if n < 2.

    Args:
      features: `[n, m]`.
      mask: 1 for a sample, 0 for padding, `[n]`; without it all are samples.
    """
    weights = jnp.ones(features.shape[:1], features.dtype) if mask is None else mask.astype(features.dtype)
    kept = jnp.where(weights[:, None] > 0, features, 0)
    mean = jax.vmap(masked_mean, in_axes=(1, None))(kept, weights)
    centred = weights[:, None] * (kept - mean[None, :])
    # Accelerators multiply matrices in reduced precision by default.
    products = jnp.matmul(centred.T, centred, precision=jax.lax.Precision.HIGHEST)
    return products / jnp.maximum(jnp.sum(weights) - 1, 1)


def covariance_matching(features: jax.Array, mask: jax.Array | None = None, *, reference: float) -> jax.Array:
    """`|Cov(z) - reference I|_F^2 / m`, UAP, equation 4, over a batch's features of all classes.

    With fewer than two samples it is the constant `reference^2`.

    Args:
      features, mask: as in `feature_covariance`.
      reference: variance of each feature, `gamma lambda` of the paper.
    """
    size = features.shape[1]
    return (
        jnp.sum(jnp.square(feature_covariance(features, mask) - reference * jnp.eye(size, dtype=features.dtype))) / size
    )


def off_diagonal_covariance(features: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """`sum_(i != j) Cov(z)_ij^2 / m`: the variances are free (UAP, Table 15, last row)."""
    size = features.shape[1]
    return jnp.sum(jnp.square(feature_covariance(features, mask) * (1 - jnp.eye(size, dtype=features.dtype)))) / size
