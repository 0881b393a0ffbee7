"""CCST: clients also train on their images in the styles of other clients' images.

    x_k = sigma' (x - mu) / sigma + mu',    (mu', sigma') of another client's image, or of all that it showed
    L   = mean over x and x_1 ... x_level of the cross-entropy

mu and sigma are the mean and the deviation of each channel over the pixels; x_1, x_2, ... are drawn anew for each
minibatch, each in the style of another random client, different ones while there are enough
(`fdgjax.data.augmentations.style`). With level 0 it is FedAvg; a step costs as much as level + 1 of its steps. The
paper's K counts the image itself where all clients are drawn: with three clients K = 3 is level 2.

**The paper transfers styles between features of a pretrained VGG, which a pretrained decoder makes images of; here they
are those of the pixels**: colours and contrast, no textures.

**Statistics of the data are shared**: every client sends mean and deviation of each channel of some of its images, and
receives those of all clients; both count as communication. The bank keeps what each client sent last. It is empty in
the first round, where x_k = x.

Chen, Jiang, Dou and Chen, "Federated domain generalization for image recognition via cross-client style transfer", WACV
2023. w predicts for an unseen domain.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, Setup, Variables
from fdgjax.data.augmentations.style import Style, in_style, style_of
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.bank import DrawnImages, draw_different_others, with_bank
from fdgjax.methods.parts.entry import Entry, always
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import IMAGES, SEVERAL_CLIENTS
from fdgjax.objectives import mean_cross_entropy
from fdgjax.utils.registry import lookup


def single(shown: Style, drawn: DrawnImages) -> Style:
    """The styles of the drawn images, `[count, channels]`."""
    return jax.tree.map(lambda leaf: leaf[drawn.client, drawn.image], shown)


def overall(shown: Style, drawn: DrawnImages) -> Style:
    """The styles of all images together that the drawn clients showed, `[count, channels]`."""
    mean = jnp.mean(shown.mean, axis=1)
    variance = jnp.mean(jnp.square(shown.deviation), axis=1) + jnp.var(shown.mean, axis=1)
    return Style(mean[drawn.client], jnp.sqrt(variance)[drawn.client])


STYLES: Mapping[str, Callable[[Style, DrawnImages], Style]] = {"single": single, "overall": overall}
"""Whose styles are taken: `(shown [clients, images, channels], drawn) -> [count, channels]`."""


@dataclasses.dataclass(frozen=True)
class CCST(FedAvg):
    """FedAvg's hyperparameters and the exchange's.

    level: how many restyled copies each image has. styles: which style of another client a copy takes, that of a
      `single` image or the `overall` one of its images.
    images: number of images whose styles a client sends in a round.
    """

    level: int = hyper(
        1, search=(0, 1, 2, 3), source="Chen et al., official code: K of 1 to 3, the image itself among them"
    )
    styles: str = hyper("overall", search=tuple(STYLES), source="Chen et al.: both")
    images: int = hyper(16, least=1, search=(4, 16, 64), source="as FedCCRL's")


def ccst(setup: Setup, h: CCST) -> Method:
    """FedAvg on images and restyled copies of them; a client's row holds its place in the bank of styles.

    Raises:
      UserError: an unknown word in `h`.
    """
    taken, base = lookup("styles", h.styles, STYLES), fedavg(setup, h)
    if not h.level:
        return base

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        copies = restyled(key, batch.inputs, context, taken, h.level)
        output, changed = setup.model.apply(variables, jnp.concatenate([batch.inputs, *copies]), True, key)
        rows = jnp.tile(jnp.arange(len(batch.labels)), h.level + 1)
        weight = jnp.broadcast_to(batch.label_weight, batch.labels.shape)[rows]
        grown = batch._replace(labels=batch.labels[rows], mask=batch.mask[rows], label_weight=weight)
        return mean_cross_entropy(output.logits, grown), changed

    return with_bank(base, style_of, h.images)._replace(objective=objective)


def restyled(
    key: jax.Array, images: jax.Array, context: Context, taken: Callable[[Style, DrawnImages], Style], copies: int
) -> list[jax.Array]:
    """The images in styles of other clients, several times; in their own while the bank has no other client's."""
    who, which = jax.random.split(key)

    def one(drawn: DrawnImages) -> jax.Array:
        own_share = jnp.where(drawn.any, jnp.zeros(len(images)), 1)
        return in_style(images, taken(context.sent.more.shown, drawn), own_share)

    return [one(drawn) for drawn in draw_different_others(who, which, context, len(images), copies)]


ENTRY = Entry(
    "ccst",
    CCST,
    ccst,
    "images in other clients' styles: shares data statistics (Chen et al., 2023)",
    title="CCST",
    pixels=always,
    needs=(IMAGES, SEVERAL_CLIENTS),
)
