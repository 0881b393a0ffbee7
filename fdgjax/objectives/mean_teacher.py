"""Mean teacher: consistency with a moving average of the student (Tarvainen & Valpola, 2017)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables
from fdgjax.objectives.cross_entropy import masked_mean


def new_teacher(variables: Variables) -> Variables:
    """The initial collection `teacher`: the parameters, and the number of steps averaged so far."""
    return {"params": variables["params"], "steps": jnp.zeros(())}


def student_of(variables: Variables) -> Variables:
    """The student's variables: all but the teacher."""
    return {name: leaf for name, leaf in variables.items() if name != "teacher"}


def followed(teacher: Variables, params: Variables, decay: float) -> Variables:
    """`t <- a t + (1 - a) s`, a = min(n / (n + 1), decay) for the n-th student (from 0): a plain mean at
    first, then an exponential moving average."""
    share = jnp.minimum(teacher["steps"] / (teacher["steps"] + 1), jnp.asarray(decay))
    nearer = jax.tree.map(lambda t, s: share * t + (1 - share) * s, teacher["params"], params)
    return {"params": nearer, "steps": teacher["steps"] + 1}


def mean_teacher(
    model: Model,
    view: Callable[[jax.Array, jax.Array], jax.Array],
    *,
    decay: float,
    temperature: float,
    strength: float = 1.0,
) -> Objective:
    r"""`r mean_j |softmax(f_s(a(x_j))) - q_j|^2`, with `q_j` proportional to `softmax(f_t(a'(x_j)))^(1 / T)`.

    The teacher is updated before each step. It runs in evaluation mode, with the batch statistics that the client
    received, and has no gradient.

    Args:
      model: f; its variables also have a collection `teacher`, see `new_teacher`.
      view: a and a', drawn anew for each.
      decay: of the teacher.
      temperature: T; below 1 the teacher's probabilities are sharpened.
      strength: r.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        teacher = followed(variables["teacher"], jax.lax.stop_gradient(variables["params"]), decay)
        own_view, view_key, apply_key = jax.random.split(key, 3)
        output, changed = model.apply(student_of(variables), view(own_view, batch.inputs), True, apply_key)
        asked = student_of(context.received) | {"params": teacher["params"]}
        guide, _ = model.apply(asked, view(view_key, batch.inputs), False, apply_key)
        # A power of probabilities, scaled to a sum of one, is the softmax of scaled logits.
        wanted = jax.nn.softmax(guide.logits / temperature)
        apart = jnp.sum(jnp.square(jax.nn.softmax(output.logits) - wanted), axis=1)
        return strength * masked_mean(apart, batch.mask), {**changed, "teacher": teacher}

    return objective
