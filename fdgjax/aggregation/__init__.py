"""Aggregation rules: pure functions `rule(updates, weights=None, **hyper) -> (update, coefficients)`.

`updates` is a pytree whose leaves are `[clients, ...]`, or a Python list of the clients' pytrees
(a root of type `list` is a list of clients, any other is stacked; see `fdgjax.aggregation.lists`); `weights` is None
(uniform), one array `[clients]`, or a pytree prefix of such arrays (one per leaf or subtree). Weights need not sum to
one. The returned update has no client axis; `attention` and `nearest_neighbour_mixing` return one for each client.
`coefficients`, of the same form as the weights, are the factors of the clients' updates. Those of the mean and of
cosine softmax sum to one; those of the min-norm point of normalised updates and of gradient matching do not, and need
not be unique.
"""

from collections.abc import Mapping

from fdgjax.aggregation.attention import attention
from fdgjax.aggregation.centres import centered_clipping, geometric_median
from fdgjax.aggregation.combine import chain, partition
from fdgjax.aggregation.cosine_softmax import cosine_softmax, cosine_softmax_updates
from fdgjax.aggregation.global_alignment import global_alignment
from fdgjax.aggregation.gradient_mask import gradient_mask
from fdgjax.aggregation.gradient_matching import gradient_matching
from fdgjax.aggregation.gradients import pulled_back, through_heads
from fdgjax.aggregation.krum import krum, multi_krum
from fdgjax.aggregation.lists import stack
from fdgjax.aggregation.masked import masked_update_mean
from fdgjax.aggregation.mean import mean
from fdgjax.aggregation.min_norm import min_norm
from fdgjax.aggregation.mixing import nearest_neighbour_mixing
from fdgjax.aggregation.robust import ROBUST
from fdgjax.aggregation.subsets import distance_reweighted, mean_of_subsets
from fdgjax.aggregation.trimmed import median, trimmed_mean
from fdgjax.aggregation.updates import Updates, concatenated, explicit, regrouped
from fdgjax.contract import Rule

RULES: Mapping[str, Rule] = {
    "mean": mean,
    "cosine_softmax": cosine_softmax,
    "min_norm": min_norm,
    "global_alignment": global_alignment,
    "gradient_mask": gradient_mask,
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "multi_krum": multi_krum,
    "geometric_median": geometric_median,
    "centered_clipping": centered_clipping,
}

__all__ = [
    "ROBUST",
    "RULES",
    "Updates",
    "attention",
    "centered_clipping",
    "chain",
    "concatenated",
    "cosine_softmax",
    "cosine_softmax_updates",
    "distance_reweighted",
    "explicit",
    "geometric_median",
    "global_alignment",
    "gradient_mask",
    "gradient_matching",
    "krum",
    "masked_update_mean",
    "mean",
    "mean_of_subsets",
    "median",
    "min_norm",
    "multi_krum",
    "nearest_neighbour_mixing",
    "partition",
    "pulled_back",
    "regrouped",
    "stack",
    "through_heads",
    "trimmed_mean",
]
