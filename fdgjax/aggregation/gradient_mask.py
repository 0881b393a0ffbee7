"""The mean, masked elementwise where clients disagree on its sign (FedGMA)."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.weighting import client_count, normalise_weights, weighted_sum
from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup

MASKS: Mapping[str, Callable[[jax.Array], jax.Array]] = {"soft": lambda agreement: agreement, "hard": jnp.zeros_like}
"""The mask of elements with an agreement below the threshold."""

VOTES: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "weights": lambda weights: weights,
    "equal": lambda weights: (weights > 0).astype(jnp.float32),
}
"""The vote v of a client's sign, from its weight."""

ROUNDING = 1e-6
"""Tolerance of the threshold: agreements are sums of shares, and one equal to tau may be rounded below it."""


@accepting_lists
def gradient_mask(
    updates: PyTree, weights: PyTree | None = None, *, tau: float = 0.4, mask: str = "soft", votes: str = "weights"
) -> tuple[PyTree, PyTree]:
    r"""`u[j] = m[j] sum_i w_i u_i[j]`, with the normalised weights w and, for every element j,

        A[j] = |sum_i v_i sign(u_i[j])|,    m[j] = 1 where A[j] >= tau, else A[j]

    With tau = 0 it is the mean.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; clients with weight zero are invisible.
      tau: the agreement from which the mean counts in full, in [0, 1].
      mask: below it the mean is multiplied by the agreement (`soft`, FedGMA) or dropped (`hard`, the AND-mask).
      votes: v is w (`weights`), or equal for all clients with a positive weight (`equal`).

    Returns:
      `(update, coefficients)`, the coefficients being the normalised weights, before the mask.

    Raises:
      UserError: unknown mask or votes, or a tau outside [0, 1].

    References:
      Tenison et al., "Gradient masked averaging for federated learning", TMLR 2023, Algorithm 1.
    """
    if not 0 <= tau <= 1:
        raise UserError(f"gradient_mask got tau={tau}; expected a share from 0 (the mean) to 1")
    below, vote = lookup("mask", mask, MASKS), lookup("votes", votes, VOTES)
    shares = normalise_weights(weights, client_count(updates))
    signs = jax.tree.map(lambda u: jnp.sign(u.astype(jnp.float32)), updates)
    agreements = weighted_sum(signs, normalise_weights(jax.tree.map(vote, shares), client_count(updates)))

    def masked(mean: jax.Array, agreement: jax.Array) -> jax.Array:
        agreement = jnp.abs(agreement)
        kept = jnp.where(agreement >= tau - ROUNDING, 1, below(agreement))
        return (kept * mean.astype(jnp.float32)).astype(mean.dtype)

    return jax.tree.map(masked, weighted_sum(updates, shares), agreements), shares
