"""Cross-entropy with a distance between the features of domains."""

from collections.abc import Callable

import jax

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables
from fdgjax.objectives.by_domain import mean_over_domains, members
from fdgjax.objectives.cross_entropy import each_cross_entropy


def aligned_domains(
    model: Model, distance: Callable[[jax.Array, jax.Array], jax.Array], domains: int, penalty: float
) -> Objective:
    """`mean_d CE_d + penalty distance(features, members)`, CE_d the mean over the batch's samples of domain d.

    Args:
      model: with features.
      distance: of features `[batch, m]` and `members` `[batch, domains]`, such as `by_domain.coral`.
      domains: of the data set.
      penalty: the distance's weight.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        output, changed = model.apply(variables, batch.inputs, True, key)
        own = members(batch, domains)
        loss = mean_over_domains(each_cross_entropy(output.logits, batch), own)
        return loss + penalty * distance(output.features, own), changed

    return objective
