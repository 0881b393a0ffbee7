"""The weighted mean (FedAvg)."""

from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.weighting import client_count, normalise_weights, weighted_sum
from fdgjax.contract import PyTree


@accepting_lists
def mean(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
    r"""`u = sum_i w_i u_i / sum_j w_j`.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; clients with weight zero are invisible.

    Returns:
      `(update, coefficients)`, the coefficients being the normalised weights.

    References:
      McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017, Algorithm 1.
    """
    coefficients = normalise_weights(weights, client_count(updates))
    return weighted_sum(updates, coefficients), coefficients
