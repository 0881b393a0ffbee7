"""The proximal term of FedProx, which keeps local parameters near the received ones."""

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Objective, ObjectiveResult, Variables


def proximal(objective: Objective, strength: float) -> Objective:
    """`objective + strength / 2 * |w - w_received|^2` over the parameters.

    References:
      Li et al., "Federated optimization in heterogeneous networks", 2020, equation 2.
    """

    def with_proximal(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, changed = objective(variables, batch, key, context)
        gaps = jax.tree.map(
            lambda w, start: jnp.sum(jnp.square(w - start)), variables["params"], context.received["params"]
        )
        return loss + strength / 2 * sum(jax.tree.leaves(gaps)), changed

    return with_proximal
