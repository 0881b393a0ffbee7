"""Every gradient shifted by the same vector: a linear term."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Objective, ObjectiveResult, PyTree, Variables


def shifted(objective: Objective, shift: Callable[[Context], PyTree]) -> Objective:
    """`objective + <shift, w>` as far as its gradient by the parameters goes; its value stays the objective's.

    SCAFFOLD's correction and FedDyn's linear term. The term's value would say nothing of how well a client learns.

    Args:
      objective: what it is added to.
      shift: `(context) -> pytree like params`.
    """

    def with_shift(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, (changed, info) = objective(variables, batch, key, context)
        terms = jax.tree.map(
            lambda s, w: jnp.sum(s * (w - jax.lax.stop_gradient(w))), shift(context), variables["params"]
        )
        return loss + sum(jax.tree.leaves(terms)), (changed, info)

    return with_shift
