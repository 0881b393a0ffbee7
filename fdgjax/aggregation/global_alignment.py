"""FedGaLA's global alignment: clients weighted by the cosine of their update with the aggregate, iterated."""

from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp

from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.scopes import SCOPES
from fdgjax.aggregation.updates import Updates, cosines_to_sums, explicit
from fdgjax.aggregation.weighting import normalise_weights
from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup

COMPARED: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "updates": jnp.ones_like,
    "shares": lambda sizes: normalise_weights(sizes, len(sizes)),
}
"""The `factors` of `global_alignment` from the clients' numbers of samples, `[clients] -> [clients]`: ones, or as in
FedGaLA's official code the clients' shares of the samples."""


@accepting_lists
def global_alignment(
    updates: PyTree,
    weights: PyTree | None = None,
    *,
    iterations: int = 3,
    gamma: float = 0.0,
    scope: str = "leaf",
    factors: jax.Array | None = None,
) -> tuple[PyTree, PyTree]:
    r"""Weights by each update's cosine with the aggregate, iterated with the aggregate that they give.

    With `p_i = w_i / sum_j w_j`, initially `u = sum_i p_i u_i`, and in each of `iterations`:

        c_i = p_i (1 + cos(u_i, u)) / sum_j p_j (1 + cos(u_j, u)),    u = sum_i c_i u_i;

    then `c_i <- (1 - gamma) c_i + gamma p_i`. The cosine with a zero vector counts as zero. Where all cosines are -1
    and the sum is zero, the c_i keep the values of the iteration before. Without iterations, or with gamma 1, it is the
    mean.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; clients with weight zero are invisible. Uniform ones are the
        paper's.
      iterations: 3 in the paper (Figure 4b).
      gamma: share of the plain mean (equation 41), from 0 to 1.
      scope: `"leaf"` takes one cosine per client and leaf (the official code), `"tree"` one over all leaves.
      factors: f, `[clients]`, ones by default: the u with which updates are compared is `sum_i c_i f_i u_i` (the
        official code takes the clients' shares of the samples, `COMPARED`); the c_i and the result are as above.

    Returns:
      `(update, coefficients)`; the coefficients sum to one over clients.

    Raises:
      UserError: unknown scope, a negative number of iterations, or a gamma outside [0, 1].

    References:
      FedGaLA, section 4.2, Algorithm 1 and appendix E.
    """
    if iterations < 0 or not 0 <= gamma <= 1:
        raise UserError(
            f"global_alignment got iterations={iterations} and gamma={gamma}; expected at least 0, and a share from 0 "
            "to 1"
        )
    rule = partial(_aligned, iterations=iterations, gamma=gamma, factors=1.0 if factors is None else factors)
    return lookup("scope", scope, SCOPES)(rule)(explicit(updates), weights)


def _aligned(
    updates: Updates, weights: PyTree | None = None, *, iterations: int, gamma: float, factors: jax.Array | float
) -> tuple[PyTree, PyTree]:
    shares, cosines = normalise_weights(weights, updates.clients), cosines_to_sums(updates)

    def again(coefficients: PyTree, _: None) -> tuple[PyTree, None]:
        agreement = 1 + cosines(jax.tree.map(lambda c: factors * c, coefficients))

        def weigh(share: jax.Array, before: jax.Array) -> jax.Array:
            raised = share * jnp.where(share > 0, agreement, 0)
            total = jnp.sum(raised)
            return jnp.where(total > 0, raised / jnp.where(total > 0, total, 1), before)

        return jax.tree.map(weigh, shares, coefficients), None

    aligned, _ = jax.lax.scan(again, shares, length=iterations)
    mixed = jax.tree.map(lambda c, share: (1 - gamma) * c + gamma * share, aligned, shares)
    return updates.combine(mixed), mixed
