"""A linear term, which shifts every gradient by the same vector."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Objective, ObjectiveResult, PyTree, Variables


def shifted(objective: Objective, shift: Callable[[Context], PyTree]) -> Objective:
    """An objective with the value of `objective` and, in the parameters, the gradient of `objective + <shift, w>`.

    For SCAFFOLD's correction and FedDyn's linear term, whose values would only obscure the recorded loss.

    Args:
      objective: the objective to which the term is added.
      shift: `(context) -> pytree like params`.
    """

    def with_shift(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, changed = objective(variables, batch, key, context)
        terms = jax.tree.map(
            lambda s, w: jnp.sum(s * (w - jax.lax.stop_gradient(w))), shift(context), variables["params"]
        )
        return loss + sum(jax.tree.leaves(terms)), changed

    return with_shift
