"""GradAlign: clients weighted by the cosine of their update with the mean update (hFedF)."""

import jax
import jax.numpy as jnp

from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.scopes import SCOPES
from fdgjax.aggregation.updates import Updates, cosines_to_sums, explicit
from fdgjax.aggregation.weighting import normalise_weights
from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


@accepting_lists
def cosine_softmax(
    updates: PyTree,
    weights: PyTree | None = None,
    *,
    sign: int = 1,
    temperature: float = 1.0,
    scope: str = "tree",
) -> tuple[PyTree, PyTree]:
    r"""Softmax of each update's cosine with the mean update.

    With `m = sum_i w_i u_i / sum_j w_j` and `cos_i = <u_i, m> / (|u_i| |m|)`,

        c_i = w_i exp(sign * cos_i / temperature) / sum_j w_j exp(sign * cos_j / temperature),    u = sum_i c_i u_i.

    The cosine with a zero vector counts as zero. Uniform weights, sign +1 and temperature 1 are the paper's.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; clients with weight zero are invisible.
      sign: +1 favours clients that agree with the mean (hFedF v2, Algorithm 3 and text), -1 those that do not
        (as equation 9 is printed).
      temperature: above one flattens, below one sharpens the weights.
      scope: `"tree"` takes one cosine per client over all leaves, `"leaf"` one per client and leaf.

    Returns:
      `(update, coefficients)`; the coefficients sum to one over clients.

    Raises:
      UserError: unknown scope, sign other than +1 or -1, or a temperature that is not positive.

    References:
      hFedF v2, Algorithm 3 (GradAlign), equations 8 and 9.
    """
    return cosine_softmax_updates(explicit(updates), weights, sign=sign, temperature=temperature, scope=scope)


def cosine_softmax_updates(
    updates: Updates,
    weights: PyTree | None = None,
    *,
    sign: int = 1,
    temperature: float = 1.0,
    scope: str = "tree",
) -> tuple[PyTree, PyTree]:
    """`cosine_softmax` of `Updates`, which need not be materialised."""
    if sign not in (1, -1):
        raise UserError(f"cosine_softmax got sign={sign}; expected +1 (agreement) or -1 (disagreement)")
    if not temperature > 0:
        raise UserError(f"cosine_softmax got temperature={temperature}; expected a positive number")

    def rule(updates: Updates, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        shares = normalise_weights(weights, updates.clients)
        cosine = cosines_to_sums(updates)(shares)
        coefficients = jax.tree.map(lambda w: weighted_softmax(sign * cosine / temperature, w), shares)
        return updates.combine(coefficients), coefficients

    return lookup("scope", scope, SCOPES)(rule)(updates, weights)


def weighted_softmax(score: jax.Array, weights: jax.Array) -> jax.Array:
    """`w_i exp(s_i) / sum_j w_j exp(s_j)`, `[clients]`; all zero where all weights are."""
    counts = weights > 0
    top = jnp.max(score, where=counts, initial=-jnp.inf)
    raised = weights * jnp.exp(jnp.where(counts, score - top, 0))
    return raised / jnp.maximum(jnp.sum(raised), jnp.finfo(raised.dtype).tiny)
