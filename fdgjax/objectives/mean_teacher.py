"""A student that agrees with its teacher, a model that follows it slowly (Tarvainen & Valpola, 2017)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Model, Objective, Variables
from fdgjax.objectives.cross_entropy import masked_mean


def with_teacher(variables: Variables) -> Variables:
    """The variables with a collection `teacher`, itself such variables: a copy of them in the beginning."""
    return {**variables, "teacher": variables}


def student_of(variables: Variables) -> Variables:
    """The model that is trained."""
    return {name: leaf for name, leaf in variables.items() if name != "teacher"}


def teacher_of(variables: Variables, decay: float) -> Variables:
    """The teacher after a step towards the student's parameters, `t <- decay t + (1 - decay) s`; its statistics are
    those of its own passes."""
    teacher = variables["teacher"]
    nearer = jax.tree.map(lambda t, s: decay * t + (1 - decay) * s, teacher["params"], variables["params"])
    return {**teacher, "params": nearer}


def mean_teacher(
    model: Model, view: Callable[[jax.Array, jax.Array], jax.Array], *, decay: float, temperature: float
) -> Objective:
    r"""`mean_j |softmax(f_s(a(x_j))) - q_j|^2 / K`, with `q_j` proportional to `softmax(f_t(a'(x_j)))^(1 / T)`.

    The teacher first follows what the last step has left of the student; no gradient reaches it.

    Args:
      model: f; its variables are those of `with_teacher`.
      view: a and a', drawn anew for each.
      decay: of the teacher.
      temperature: T; below 1 the teacher's probabilities are sharpened.
    """

    def objective(
        variables: Variables, batch: Batch, key: jax.Array, context: Context
    ) -> tuple[jax.Array, tuple[Variables, dict[str, jax.Array]]]:
        del context
        teacher = jax.lax.stop_gradient(teacher_of(variables, decay))
        keys = jax.random.split(key, 4)
        output, changed = model.apply(student_of(variables), view(keys[0], batch.images), True, keys[1])
        guide, moved = model.apply(teacher, view(keys[2], batch.images), True, keys[3])
        # A power of probabilities, scaled to a sum of one, is the softmax of scaled logits.
        wanted = jax.nn.softmax(guide.logits / temperature)
        apart = jnp.mean(jnp.square(jax.nn.softmax(output.logits) - wanted), axis=1)
        return masked_mean(apart, batch.mask), ({**changed, "teacher": {**teacher, **moved}}, {})

    return objective
