"""Adapting any method's model to an unseen domain without labels, before it is tested there.

    own           what the method itself does, or nothing
    none          nothing
    statistics    BatchNorm's statistics of the unseen samples replace those of training
    tent          the same, and the entropy of the predictions is minimised over BatchNorm's scales and biases
    shot          everything before the last layer is trained to make certain and diverse predictions
    t3a           the last layer is replaced by the mean directions of the features that it predicts as each class

What is adapted to (all samples of the domain, each batch, or each batch after the one before) is chosen beside it.
Statistics: Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation", 2020, and
Nado et al., "Evaluating prediction-time batch normalization for robustness under covariate shift", 2020. The sources of
the others are named at their functions.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import (
    AdaptFn,
    Model,
    Output,
    Scope,
    Unlabelled,
    Variables,
)
from fdgjax.methods.parts.optimizers import optimizer, trained_where
from fdgjax.methods.parts.pseudo_labels import centroid_labels, outputs_for_all
from fdgjax.methods.parts.requirements import last_layer
from fdgjax.objectives import entropies, entropy, information_maximisation, replaced_statistics
from fdgjax.objectives.self_supervised import directions
from fdgjax.utils.errors import UserError
from fdgjax.utils.fields import key
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten, module_of, norm_paths, unflatten

SCOPES: Mapping[str, Scope] = {
    "domain": Scope(),
    "batch": Scope(batched=True),
    "stream": Scope(batched=True, carried=True),
}
"""What a model is adapted to at a time: all samples of the unseen domain, each batch by itself, or each batch with the
model that was adapted to those before."""


class Kind(NamedTuple):
    """A way to adapt.

    make: `(model, settings, the method's own) -> adaptation`, None for none. takes: the settings that it reads, besides
    `scope` and `batch_size`. epochs, learning_rate: where the settings have none.
    """

    make: Callable[[Model, "AdaptationConfig", AdaptFn | None], AdaptFn | None]
    takes: tuple[str, ...] = ()
    epochs: int = 0
    learning_rate: float = 0.0


def own(model: Model, how: "AdaptationConfig", method: AdaptFn | None) -> AdaptFn | None:
    """What the method itself does."""
    del model, how
    return method


def none(model: Model, how: "AdaptationConfig", method: AdaptFn | None) -> None:
    """No adaptation."""
    del model, how, method


def statistics(model: Model, how: "AdaptationConfig", method: AdaptFn | None) -> AdaptFn:
    """BatchNorm's statistics become `s trained + (1 - s) of the unseen samples`, s = `source_share`; those of several
    batches are averaged."""
    del method
    norms_of(model, how)
    collect = replaced_statistics(model)

    def adapt(variables: Variables, domain: Unlabelled) -> Variables:
        found = domain.fit({**variables, "seen": jnp.zeros(())}, collect, optax.set_to_zero(), 1)
        mixed = jax.tree.map(
            lambda old, new: how.source_share * old + (1 - how.source_share) * new,
            variables["batch_stats"],
            found["batch_stats"],
        )
        return {**variables, "batch_stats": mixed}

    return adapt


def tent(model: Model, how: "AdaptationConfig", method: AdaptFn | None) -> AdaptFn:
    """Tent: steps of Adam on the mean entropy over scale and bias of BatchNorm, which normalises by the batch's
    statistics; then `statistics` of the result.

    References:
      Wang et al., "Tent: fully test-time adaptation by entropy minimization", ICLR 2021, section 3.2.
    """
    norms, follow = norms_of(model, how), statistics(model, how, method)
    objective = entropy(model)
    adam = optimizer("adam", learning_rate=how.learning_rate)
    steps = trained_where(lambda path: module_of(f"params/{path}") in norms, adam)

    def adapt(variables: Variables, domain: Unlabelled) -> Variables:
        trained = domain.fit(variables, objective, steps, how.epochs)
        return follow({**variables, "params": trained["params"]}, domain)

    return adapt


def shot(model: Model, how: "AdaptationConfig", method: AdaptFn | None) -> AdaptFn:
    """SHOT: SGD with Nesterov's momentum .9 on all layers but the last, by `information_maximisation` and
    `pseudo_label_weight` times the cross-entropy with the labels of the nearest centroids, found once, before training.

    References:
      Liang et al., "Do we really need to access the source data?", ICML 2020, equations 3 to 7 and official code, which
      finds the labels anew in each epoch.
    """
    del method
    path = last_linear(model, how)
    last = module_of(path)
    if all(module_of(path) == last for path in flatten(model.shapes())):
        raise UserError(
            f"config.adaptation.kind got '{how.kind}', which trains everything before the last layer, but all that is "
            "frozen; expected t3a, none or own"
        )
    objective = information_maximisation(model, how.pseudo_label_weight)
    sgd = optax.sgd(how.learning_rate, momentum=0.9, nesterov=True)
    steps = trained_where(lambda path: module_of(f"params/{path}") != last, sgd)

    def adapt(variables: Variables, domain: Unlabelled) -> Variables:
        output = outputs_for_all(model, variables, domain.samples)
        check_features(output, variables, path, how)
        labels = centroid_labels(output.features, output.logits, domain.samples.mask)
        return domain.fit(variables, objective, steps, how.epochs, labels)

    return adapt


def t3a(model: Model, how: "AdaptationConfig", method: AdaptFn | None) -> AdaptFn:
    """T3A: the last layer's column of a class becomes the mean direction of its support, scaled to length 1, and its
    bias 0. The support of a class are its former column and the features of the samples that the trained model predicts
    as this class, each scaled to length 1; of these the `support` ones whose prediction has the least entropy.

    References:
      Iwasawa and Matsuo, "Test-time classifier adjustment module for model-agnostic domain generalization", NeurIPS
      2021, equations 2 to 4 and official code, in which an image's support are the images before it.
    """
    del method
    path = last_linear(model, how)

    def adapt(variables: Variables, domain: Unlabelled) -> Variables:
        flat = flatten(variables)
        kernel, bias = flat[path], flat.get(bias_path := path.replace("/kernel", "/bias"))
        output = outputs_for_all(model, variables, domain.samples)
        check_features(output, variables, path, how)
        prior = kernel.T @ kernel + (0 if bias is None else bias[None])
        centres = class_directions(
            jnp.concatenate([kernel.T, output.features]),
            jnp.concatenate([prior, output.logits]),
            jnp.concatenate([jnp.ones(len(prior)), domain.samples.mask]),
            how.support,
        )
        changed = {path: centres} if bias is None else {path: centres, bias_path: jnp.zeros_like(bias)}
        return unflatten({**flat, **changed})

    return adapt


def class_directions(features: jax.Array, logits: jax.Array, mask: jax.Array, most: int) -> jax.Array:
    """The direction of each class's support, `[m, K]`, columns of length 1, or zeros for a class without one.

    Args:
      features: `[n, m]`. logits: `[n, K]`, by which they are supports of a class. mask: `[n]`, 0 for padding.
      most: supports of a class, those of least entropy; 0 for all.
    """
    classes = logits.shape[1]
    uncertainty = entropies(logits)
    belongs = jax.nn.one_hot(jnp.argmax(logits, axis=1), classes) * mask[:, None]
    if most:
        ranked = jnp.argsort(jnp.where(belongs > 0, uncertainty[:, None], jnp.inf), axis=0)
        belongs = jnp.where(jnp.argsort(ranked, axis=0) < most, belongs, 0)
    sums = jnp.matmul(directions(features).T, belongs, precision=jax.lax.Precision.HIGHEST)
    return directions(sums.T).T


def norms_of(model: Model, how: "AdaptationConfig") -> frozenset[str]:
    """The paths of the model's BatchNorm layers; raises a `UserError` if there are none."""
    found = norm_paths(model.shapes())
    if not found:
        raise UserError(
            f"config.adaptation.kind got '{how.kind}', which adapts BatchNorm, and the trained part of the model has "
            "none; expected t3a or shot, config.model.unit=norm, or a network with BatchNorm after its frozen stages"
        )
    return found


def last_linear(model: Model, how: "AdaptationConfig") -> str:
    """The path of the last layer's kernel; raises a `UserError` if that layer does not make the logits."""
    path = last_layer(model)
    if path not in flatten(model.shapes()):
        raise UserError(
            f"config.adaptation.kind got '{how.kind}', which needs a network that ends in a linear layer; this one "
            f"ends in {module_of(path).partition('/')[2]}; expected statistics, tent, none or own"
        )
    return path


def check_features(output: Output, variables: Variables, path: str, how: "AdaptationConfig") -> None:
    """Raises a `UserError` if the features are not what the layer with the kernel at `path` reads."""
    expected, got = flatten(variables)[path].shape[0], output.features.shape[-1]
    if got != expected:
        raise UserError(
            f"config.adaptation.kind got '{how.kind}', which needs the last layer's input, {expected} numbers, as the "
            f"network's features, and these are {got}; expected a network that sows it: "
            'self.sow("intermediates", "features", x)'
        )


ADAPTATIONS: Mapping[str, Kind] = {
    "own": Kind(own),
    "none": Kind(none),
    "statistics": Kind(statistics, ("source_share",)),
    "tent": Kind(tent, ("source_share", "epochs", "learning_rate"), epochs=1, learning_rate=1e-3),
    "shot": Kind(shot, ("pseudo_label_weight", "epochs", "learning_rate"), epochs=15, learning_rate=1e-2),
    "t3a": Kind(t3a, ("support",)),
}
"""Adaptations by name."""


@dataclasses.dataclass(frozen=True)
class AdaptationConfig:
    """How a model is adapted to the unseen domain, without labels, before it is tested there once more.

    kind: an entry of `ADAPTATIONS`; `own` for what the method itself does, if anything.
    scope: what it is adapted to at a time, an entry of `SCOPES`.
    batch_size: images of a step, and of a batch if `scope` is `batch` or `stream`; 0 for config.batch_size.
    epochs: passes of `tent` and `shot`; 0 for 1 (`tent`) or 15 (`shot`). learning_rate: of `tent` and `shot`; 0 for
      0.001 (`tent`) or 0.01 (`shot`).
    source_share: with `statistics` and `tent`, the share of the trained statistics in the new ones.
    support: with `t3a`, the largest number of samples that stand for a class; 0 for all.
    pseudo_label_weight: with `shot`, the weight of the cross-entropy with its pseudo-labels.
    """

    kind: str = key("own", names=ADAPTATIONS)
    scope: str = key("domain", names=SCOPES)
    batch_size: int = key(0, least=0)
    epochs: int = key(0, least=0)
    learning_rate: float = key(0.0, least=0, most=10**9)
    source_share: float = key(0.0, least=0, most=1)
    support: int = key(100, least=0)
    pseudo_label_weight: float = key(0.3, least=0, most=10**9)


def adaptation_of(model: Model, how: AdaptationConfig, method: AdaptFn | None) -> AdaptFn | None:
    """The adaptation that settings choose; `method` is the method's own.

    Raises:
      UserError: a kind that does not fit the model, or the scope.
    """
    kind = lookup("adaptation.kind", how.kind, ADAPTATIONS)
    if how.kind == "t3a" and SCOPES[how.scope].carried:
        raise UserError(
            "config.adaptation.scope got 'stream', but t3a replaces the layer that chooses its supports; expected "
            "domain or batch"
        )
    settled = dataclasses.replace(
        how, epochs=how.epochs or kind.epochs, learning_rate=how.learning_rate or kind.learning_rate
    )
    return kind.make(model, settled, method)
