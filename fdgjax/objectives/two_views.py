"""Self-supervised learning as interchangeable parts, each with a loss on two views of every image.

A part is an objective and the variables it needs besides the model's. The moving average of the model (`target`) and
MoCo's keys (`queue`) are collections of the client's variables: stacked, labelled and stored like all others.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Output, Variables
from fdgjax.data.augmentations.view import View
from fdgjax.objectives.cross_entropy import masked_mean
from fdgjax.objectives.self_supervised import directions, info_nce, negative_cosine, nt_xent
from fdgjax.utils.variables import merge

MODEL = ("params", "batch_stats")
"""The collections of the model itself."""


class TwoViewSettings(NamedTuple):
    """Settings of the parts.

    temperature: of SimCLR's and MoCo's softmax. decay: of the target, per step. queue: length of MoCo's queue of keys;
    dimension: of a key, as long as a projection.
    """

    temperature: float
    decay: float
    queue: int
    dimension: int


class SelfSupervision(NamedTuple):
    """One self-supervised method.

    extend: `(key, variables of the model, settings) -> the additional collections`.
    objective: `(model, view, settings) -> objective`.
    """

    extend: Callable[[jax.Array, Variables, TwoViewSettings], Variables]
    objective: Callable[[Model, View, TwoViewSettings], Objective]


def of_model(variables: Variables) -> Variables:
    """The model's own collections."""
    return {name: leaf for name, leaf in variables.items() if name in MODEL}


class Views(NamedTuple):
    """Two views of a batch's images, `[batch, ...]` each, and the key of a model's passes over them."""

    first: jax.Array
    second: jax.Array
    key: jax.Array


def two_views(view: View, batch: Batch, key: jax.Array) -> Views:
    """Two random views of a batch."""
    first_key, second_key, apply_key = jax.random.split(key, 3)
    return Views(view(first_key, batch.inputs), view(second_key, batch.inputs), apply_key)


def together(model: Model, variables: Variables, views: Views) -> tuple[Output, Output, Variables]:
    """A model's outputs for two views in one pass, so that BatchNorm sees both, and the changed collections."""
    output, changed = model.apply(of_model(variables), jnp.concatenate([views.first, views.second]), True, views.key)
    half = len(views.first)
    first, second = (jax.tree.map(lambda leaf, cut=cut: leaf[cut], output) for cut in (slice(half), slice(half, None)))
    return first, second, changed


def each_alone(model: Model, variables: Variables, views: Views) -> tuple[Output, Output, Variables]:
    """A model's outputs for two views, one pass after the other, and the changed collections: BatchNorm normalises each
    view by itself, and its running statistics take in the first and then the second."""
    first_key, second_key = jax.random.split(views.key)
    first, changed = model.apply(of_model(variables), views.first, True, first_key)
    second, changed = model.apply(of_model({**variables, **changed}), views.second, True, second_key)
    return first, second, changed


def follow(target: Variables, variables: Variables, decay: float) -> Variables:
    """`t <- decay t + (1 - decay) s`, for parameters and statistics."""
    now = jax.lax.stop_gradient(of_model(variables))
    return jax.tree.map(lambda t, s: decay * t + (1 - decay) * s, target, now)


def nothing(key: jax.Array, variables: Variables, settings: TwoViewSettings) -> Variables:
    """No collections besides the model's."""
    del key, variables, settings
    return {}


def simclr(model: Model, view: View, settings: TwoViewSettings) -> Objective:
    """`nt_xent` of the two views' projections, which are made together (Chen et al., 2020)."""

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        first, second, changed = together(model, variables, two_views(view, batch, key))
        loss = nt_xent(first.logits, second.logits, batch.mask, temperature=settings.temperature)
        return loss, changed

    return objective


def simsiam(model: Model, view: View, settings: TwoViewSettings) -> Objective:
    """`(-cos(p_1, z_2) - cos(p_2, z_1)) / 2`, z without a gradient (Chen and He, 2021); each view passes alone."""
    del settings

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        first, second, changed = each_alone(model, variables, two_views(view, batch, key))
        apart = negative_cosine(first.extra["prediction"], second.logits)
        apart += negative_cosine(second.extra["prediction"], first.logits)
        return masked_mean(0.5 * apart, batch.mask), changed

    return objective


def with_target(key: jax.Array, variables: Variables, settings: TwoViewSettings) -> Variables:
    """A target that starts as the model."""
    del key, settings
    return {"target": of_model(variables)}


def byol(model: Model, view: View, settings: TwoViewSettings) -> Objective:
    """`2 - 2 cos(p_1, z'_2) + 2 - 2 cos(p_2, z'_1)`, z' of the target (Grill et al., 2020, equation 2 and section 3.1).

    Each view passes alone, through the model and the target. The target is updated before each step, so it lags the
    model by one step; like the model it uses the batch's statistics.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        target = follow(variables["target"], variables, settings.decay)
        views = two_views(view, batch, key)
        first, second, changed = each_alone(model, variables, views)
        former, latter, _ = each_alone(model, target, views._replace(key=key))
        apart = 2 + 2 * negative_cosine(first.extra["prediction"], latter.logits)
        apart += 2 + 2 * negative_cosine(second.extra["prediction"], former.logits)
        return masked_mean(apart, batch.mask), {**changed, "target": target}

    return objective


def with_queue(key: jax.Array, variables: Variables, settings: TwoViewSettings) -> Variables:
    """A target that starts as the model, and a queue of random directions."""
    keys = directions(jax.random.normal(key, (settings.queue, settings.dimension)))
    return {"target": of_model(variables), "queue": {"keys": keys}}


def moco(model: Model, view: View, settings: TwoViewSettings) -> Objective:
    """`info_nce` of the model's projections of one view against the target's of another and a queue of its earlier
    projections (He et al., 2020).

    The newest keys go to the front of the queue and the oldest drop out at its end; keys of padding are included.
    The target is updated before each step and uses the batch's statistics.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        first_key, second_key, apply_key = jax.random.split(key, 3)
        target, queue = follow(variables["target"], variables, settings.decay), variables["queue"]["keys"]
        asked, changed = model.apply(of_model(variables), view(first_key, batch.inputs), True, apply_key)
        answer, _ = model.apply(target, view(second_key, batch.inputs), True, apply_key)
        loss = info_nce(asked.logits, answer.logits, queue, batch.mask, temperature=settings.temperature)
        newest = jax.lax.stop_gradient(directions(answer.logits))
        keys = jnp.concatenate([newest, queue])[: len(queue)]
        return loss, {**changed, "target": target, "queue": {"keys": keys}}

    return objective


PARTS: Mapping[str, SelfSupervision] = {
    "simclr": SelfSupervision(nothing, simclr),
    "moco": SelfSupervision(with_queue, moco),
    "byol": SelfSupervision(with_target, byol),
    "simsiam": SelfSupervision(nothing, simsiam),
}
"""Self-supervised methods by name."""


def extended(model: Model, part: SelfSupervision, settings: TwoViewSettings) -> Model:
    """The model with a part's collections among its variables."""

    def init(key: jax.Array) -> Variables:
        model_key, part_key = jax.random.split(key)
        variables = model.init(model_key)
        return merge(variables, part.extend(part_key, variables, settings))

    return model._replace(init=init)
