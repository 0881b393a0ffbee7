"""Cross-entropy on a batch and on its transformed images, at the same parameters or after a meta step."""

from collections.abc import Callable

import jax

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables
from fdgjax.objectives.cross_entropy import mean_cross_entropy

Transform = Callable[[Batch, jax.Array, Context], jax.Array]


def also_transformed(model: Model, transform: Transform, strength: float, meta_step: float = 0.0) -> Objective:
    """`CE(w; x) + strength * CE(w - meta_step * grad CE(w; x); transform(x))`; no gradient goes through the step.

    BatchNorm's running statistics see one batch after the other.

    Args:
      model: the client model.
      transform: `(batch, key, context) -> images`.
      strength: of the second loss; 0 transforms nothing.
      meta_step: of the step before it (first-order meta-learning); 0 for none.
    """

    def loss_on(variables: Variables, images: jax.Array, batch: Batch, key: jax.Array) -> ObjectiveResult:
        output, changed = model.apply(variables, images, True, key)
        return mean_cross_entropy(output.logits, batch), changed

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, changed = loss_on(variables, batch.inputs, batch, key)
        if not strength:
            return loss, changed
        transform_key, apply_key = jax.random.split(jax.random.fold_in(key, 1))
        params = variables["params"]
        if meta_step:
            inner = jax.grad(lambda p: loss_on({**variables, "params": p}, batch.inputs, batch, key)[0])(params)
            params = jax.tree.map(lambda p, g: p - meta_step * jax.lax.stop_gradient(g), params, inner)
        moved = {**variables, **changed, "params": params}
        other, rest = loss_on(moved, transform(batch, transform_key, context), batch, apply_key)
        return loss + strength * other, rest

    return objective
