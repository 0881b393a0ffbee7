"""Cross-entropy on strong views, and on weak views mixed with other samples' (MixUp; Zhang et al., 2018)."""

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables
from fdgjax.data.augmentations.weak_strong import Views
from fdgjax.objectives.cross_entropy import cross_entropy, mean_cross_entropy
from fdgjax.objectives.viewed import on_view


def fixed_and_mixed(model: Model, views: Views, *, mix: float, alpha: float) -> Objective:
    """Cross-entropy of strong views, and of mixed weak views.

        CE(f(A(x_j)), y_j) + lambda [ m CE(f(x~_j), y_j) + (1 - m) CE(f(x~_j), y_k) ]
        x~_j = m a(x_j) + (1 - m) a(x_k)

    Both are means over the batch, weighted by each label's weight; x_k are the batch's `extra_batch`, m is drawn once
    for all.

    Args:
      model: f.
      views: a and A, the weak and the strong view.
      mix: lambda; 0 leaves the second term out.
      alpha: of m's distribution, Beta(alpha, alpha).

    References:
      SemiFL: Diao, Ding and Tarokh, 2022, equations of section 3 and official code.
    """
    fixed = on_view(cross_entropy(model), views.strong)

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, changed = fixed(variables, batch, key, context)
        if not mix:
            return loss, changed
        assert isinstance(batch.extra_batch, Batch), "the method has extra_batch=True"
        view_key, share_key, other_key, apply_key = jax.random.split(jax.random.fold_in(key, 2), 4)
        share = jax.random.beta(share_key, jnp.asarray(alpha), jnp.asarray(alpha))
        images, partners = views.weak(view_key, batch.inputs), views.weak(other_key, batch.extra_batch.inputs)
        mixed = share * images + (1 - share) * partners
        output, changed = model.apply({**variables, **changed}, mixed, True, apply_key)
        own = mean_cross_entropy(output.logits, batch)
        other = mean_cross_entropy(output.logits, batch._replace(labels=batch.extra_batch.labels))
        return loss + mix * (share * own + (1 - share) * other), changed

    return objective
