"""MOON's model-contrastive loss: features near the received model's, far from a former model's."""

from collections.abc import Callable

import jax
import optax

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables
from fdgjax.objectives.cross_entropy import masked_mean, mean_cross_entropy

SHORTEST_SQUARED = 1e-12
"""Squared length below which a feature vector counts as having no direction (all units dead)."""


def contrast(features: jax.Array, near: jax.Array, far: jax.Array, temperature: float) -> jax.Array:
    """`-log(e^(cos(z, near)/T) / (e^(cos(z, near)/T) + e^(cos(z, far)/T)))` for each sample, `[batch]`.

    Args:
      features, near, far: `[batch, m]`.
      temperature: T.
    """
    to_near, to_far = (
        optax.losses.cosine_similarity(features, other, epsilon=SHORTEST_SQUARED) for other in (near, far)
    )
    return jax.nn.softplus((to_far - to_near) / temperature)


def model_contrastive(
    model: Model, strength: float, temperature: float, previous: Callable[[Context], Variables]
) -> Objective:
    """Cross-entropy plus `strength` times the mean `contrast` with the received and the previous model's features.

    Those two models are fixed: they run as in evaluation (running statistics, no dropout) and have no gradient.

    References:
      Li et al., "Model-contrastive federated learning", CVPR 2021, equations 3 and 4.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        output, changed = model.apply(variables, batch.inputs, True, key)
        near, far = (
            model.apply(fixed, batch.inputs, False, key)[0].features for fixed in (context.received, previous(context))
        )
        away = masked_mean(contrast(output.features, near, far, temperature), batch.mask)
        return mean_cross_entropy(output.logits, batch) + strength * away, changed

    return objective
