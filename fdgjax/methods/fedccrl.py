"""FedCCRL: clients also train on their images in the style of other clients' images, augmented, and make features and
predictions of the views agree.

    x_k = AugMix(sigma' (x - mu) / sigma + mu'),    mu' = s mu + (1 - s) mu_other,  sigma' likewise,  s ~ Beta(a, a)
    L   = sum_k CE(x_k) + lambda_1 mean_k SupCon(f(x_k), f(x_0)) + lambda_2 JS(p(x_0), p(x_1), p(x_2)),    k = 0, 1, 2

x_0 = x; x_1 and x_2 are drawn anew for each minibatch, the other style that of a random image of a random other client
(`fdgjax.data.augmentations.style`, `fdgjax.data.augmentations.augmix`). f are the features, SupCon the supervised
contrastive loss at temperature T and JS the Jensen-Shannon divergence of the predictions
(`fdgjax.objectives.agreement`). A step costs as much as three steps of FedAvg.

**Statistics of the data are shared**: every client sends mean and deviation of each channel of some of its images, and
receives those of all clients; both count as communication. The bank keeps what each client sent last. It is empty in
the first round, where the images keep their style.

Wang, Guo and Tang, "FedCCRL: Federated domain generalization with cross-client representation learning", 2024, and its
official code. w predicts for an unseen domain.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, Model, Objective, ObjectiveResult, Setup, Variables
from fdgjax.data.augmentations.augmix import augmix
from fdgjax.data.augmentations.style import Style, in_style, style_of, symmetric_beta
from fdgjax.data.augmentations.view import View
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.bank import draw_others, with_bank
from fdgjax.methods.parts.entry import Entry, always
from fdgjax.methods.parts.hyper import When, hyper
from fdgjax.methods.parts.requirements import CLASSES, FEATURES, IMAGES, SEVERAL_CLIENTS
from fdgjax.objectives import jensen_shannon, mean_cross_entropy, supervised_contrast
from fdgjax.objectives.agreement import POSITIVES
from fdgjax.utils.registry import lookup

AUGMENTATIONS: Mapping[str, View] = {"augmix": augmix, "none": lambda key, images: images}
"""The augmentation of an image after its change of style."""

OFFICIAL = "Wang et al., official code"


@dataclasses.dataclass(frozen=True)
class FedCCRL(FedAvg):
    """FedAvg's hyperparameters, the exchange's and those of the agreement.

    images: number of images whose styles a client sends in a round. beta: a of Beta(a, a), by which styles are mixed.
      augmentation: of an image after its change of style, an entry of `AUGMENTATIONS`.
    contrast: lambda_1, weight of the contrast. divergence: lambda_2, weight of the divergence. temperature: T of the
      contrast. positives: which vectors of its class are an anchor's positives, an entry of `POSITIVES`.
    """

    images: int = hyper(16, least=1, search=(4, 16, 64), source=f"{OFFICIAL}: a tenth of all")
    beta: float = hyper(0.1, above=0, most=1, search=(0.1, 0.5, 1.0), source=f"{OFFICIAL}: 0.1")
    augmentation: str = hyper("augmix", search=tuple(AUGMENTATIONS), source="Wang et al.")
    contrast: float = hyper(0.1, search=(0.0, 0.01, 0.1, 1.0), source=f"{OFFICIAL}: 0.1")
    divergence: float = hyper(0.1, search=(0.0, 0.01, 0.1, 1.0), source=f"{OFFICIAL}: 0.1")
    temperature: float = hyper(
        0.1, above=0, search=(0.05, 0.1, 0.5), source=f"{OFFICIAL}: 0.1", when=When(lambda h: h.contrast > 0)
    )
    positives: str = hyper("others", search=tuple(POSITIVES), source="docs/deviations.md")


def fedccrl(setup: Setup, h: FedCCRL) -> Method:
    """FedAvg on three views of each image; a client's row holds its place in the bank of styles.

    Raises:
      UserError: an unknown word in `h`.
    """
    base = with_bank(fedavg(setup, h), style_of, h.images)
    return base._replace(objective=agreeing(setup.model, h))


def agreeing(model: Model, h: FedCCRL) -> Objective:
    """Cross-entropy on the images and on two views of them, and the agreement of the three."""
    augment = lookup("augmentation", h.augmentation, AUGMENTATIONS)
    lookup("positives", h.positives, POSITIVES)

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        first, changed = model.apply(variables, batch.inputs, True, key)
        loss, outputs = mean_cross_entropy(first.logits, batch), [first]
        for number in (1, 2):
            style_key, augment_key, apply_key = jax.random.split(jax.random.fold_in(key, number), 3)
            view = augment(augment_key, restyled(style_key, batch.inputs, context, h.beta))
            output, changed = model.apply({**variables, **changed}, view, True, apply_key)
            loss += mean_cross_entropy(output.logits, batch)
            outputs.append(output)
        if h.contrast:
            contrasts = [
                supervised_contrast(
                    output.features,
                    first.features,
                    batch.labels,
                    batch.mask,
                    temperature=h.temperature,
                    positives=h.positives,
                )
                for output in outputs[1:]
            ]
            loss += h.contrast * sum(contrasts) / len(contrasts)
        if h.divergence:
            loss += h.divergence * jensen_shannon([output.logits for output in outputs], batch.mask)
        return loss, changed

    return objective


def restyled(key: jax.Array, images: jax.Array, context: Context, beta: float) -> jax.Array:
    """The images in styles mixed with those of other clients; in their own style while the bank has no other
    client's."""
    who, which, how = jax.random.split(key, 3)
    drawn = draw_others(who, which, context, len(images))
    others: Style = jax.tree.map(lambda leaf: leaf[drawn.client, drawn.image], context.sent.more.shown)
    share = jnp.where(drawn.any, symmetric_beta(how, beta, len(images)), 1)
    return in_style(images, others, share)


ENTRY = Entry(
    "fedccrl",
    FedCCRL,
    fedccrl,
    "styles of images exchanged, views that agree: shares data statistics (Wang et al., 2024)",
    title="FedCCRL",
    pixels=always,
    needs=(CLASSES, IMAGES, FEATURES, SEVERAL_CLIENTS),
)
