"""Cross-entropy, the supervised objective of every labelled client; of labels that are numbers, squared error."""

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """`sum_i m_i v_i / sum_i m_i`, zero where the mask is all zero; both `[batch]`, the mask's numbers from 0 on."""
    total = jnp.sum(mask)
    return jnp.sum(values * mask) / jnp.where(total > 0, total, 1)


def label_losses(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """`-log softmax(z_i)[y_i]` of each sample, `[batch]`; logits `[batch, classes]`, labels int32 `[batch]`.

    Of labels that are numbers, float32 `[batch]`, `(z_i - y_i)^2` with the only output z_i, `[batch, 1]`: twice the
    negative logarithm of a normal density around it with deviation 1, up to a constant.
    """
    if jnp.issubdtype(labels.dtype, jnp.floating):
        return jnp.square(logits[:, 0] - labels)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def mean_cross_entropy(logits: jax.Array, batch: Batch) -> jax.Array:
    """The mean of `label_losses` over a batch's unmasked samples, weighted by their labels' weights; logits
    `[batch, classes]`."""
    return masked_mean(label_losses(logits, batch.labels), batch.mask * batch.label_weight)


def each_cross_entropy(logits: jax.Array, batch: Batch) -> jax.Array:
    """`label_losses` of each sample times its label's weight, `[batch]`; logits `[batch, classes]`."""
    return label_losses(logits, batch.labels) * batch.label_weight


def cross_entropy(model: Model) -> Objective:
    """`-mean_i log softmax(f(x_i))[y_i]` over a batch's unmasked samples, weighted as in `mean_cross_entropy`; of
    labels that are numbers `mean_i (f(x_i) - y_i)^2`."""

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        output, changed = model.apply(variables, batch.inputs, True, key)
        return mean_cross_entropy(output.logits, batch), changed

    return objective
