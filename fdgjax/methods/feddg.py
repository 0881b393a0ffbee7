"""FedDG: clients also train on their images with low-frequency amplitudes of other clients' images.

    x' = F^-1((1 - lambda) |F(x)| + lambda A at low frequencies, |F(x)| at others; phase of F(x)),  lambda ~ U(0, 1)
    L  = CE(w; x) + gamma CE(w - eta grad CE(w; x); x')

For each image, A is drawn from the bank: a random amplitude of a random other client. With gamma = 0 it is FedAvg.

**Statistics of the data are shared**: every client sends the low-frequency amplitudes of some of its images to the
server (at 32 pixels and L = 0.01 the mean brightness of each channel, at 224 pixels 5 x 5 numbers a channel), and
receives those of all clients. Both count as communication. Each round takes the client's next images in the order of
its samples; the bank keeps what each client sent last. It is empty in the first round, where x' = x.

Liu, Chen, Qin, Dou and Heng, "FedDG: Federated domain generalization on medical image segmentation via episodic
learning in continuous frequency space", CVPR 2021, equations 2 and 3, and equation 5 with eta. Its boundary term is for
segmentation and is left out. w predicts for an unseen domain.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, Setup
from fdgjax.data.augmentations.amplitude import low_amplitudes, mix_amplitudes
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.bank import draw_others, with_bank
from fdgjax.methods.parts.entry import Entry, always
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import IMAGES, SEVERAL_CLIENTS
from fdgjax.objectives import also_transformed
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup

MIXTURES: Mapping[str, Callable[[jax.Array, int], jax.Array]] = {
    "uniform": lambda key, batch: jax.random.uniform(key, (batch,)),
    "full": lambda key, batch: jnp.ones(batch),
}
"""Distributions of lambda, `(key, batch) -> [batch]`."""


@dataclasses.dataclass(frozen=True)
class FedDG(FedAvg):
    """FedAvg's hyperparameters and the exchange.

    gamma: weight of the loss on mixed images. share: L, half of the exchanged window's side as a fraction of the
      spectrum's.
    mixture: `uniform`, or `full` (lambda = 1). images: number of images whose amplitudes a client sends
      in a round.
    meta_step: eta, step size before the loss on mixed images (first order: no gradient through it); 0 for no step.
    """

    gamma: float = hyper(1.0, search=(0.0, 0.5, 1.0), source="Liu et al., official code: 1")
    share: float = hyper(
        0.01, above=0, most=1, search=(0.003, 0.01, 0.05, 0.1), source="Liu et al.; official code: 0 to 0.003"
    )
    mixture: str = hyper("uniform", search=tuple(MIXTURES), source="Liu et al., equation 2; official code: full")
    images: int = hyper(16, least=1, search=(4, 16, 64), source="official code: an eighth of all")
    meta_step: float = hyper(0.0, search=(0.0, 1e-3), source="Liu et al., official code: 1e-3; docs/deviations.md")


def feddg(setup: Setup, h: FedDG) -> Method:
    """FedAvg on images mixed in frequency space; a client's row holds its place in the bank.

    Raises:
      UserError: an unknown mixture, a share outside [0, 0.5), or no images.
    """
    if not (0 <= h.share < 0.5 and h.images > 0):
        raise UserError(f"feddg got share={h.share}, images={h.images}; expected 0 <= share < 0.5 and images > 0")

    base = with_bank(fedavg(setup, h), lambda images: low_amplitudes(images, h.share), h.images)
    return base._replace(objective=also_transformed(setup.model, mixed_with_others(h), h.gamma, h.meta_step))


def mixed_with_others(h: FedDG) -> Callable[[Batch, jax.Array, Context], jax.Array]:
    """A batch's images with amplitudes of other clients; unchanged while the bank has none of other clients."""
    mixture = lookup("mixture", h.mixture, MIXTURES)

    def mixed(batch: Batch, key: jax.Array, context: Context) -> jax.Array:
        (who_key, which_key, how_key), count = jax.random.split(key, 3), len(batch.inputs)
        drawn = draw_others(who_key, which_key, context, count)
        how = jnp.where(drawn.any, mixture(how_key, count), 0)
        amplitudes = context.sent.more.shown[drawn.client, drawn.image]
        window = jax.eval_shape(partial(low_amplitudes, share=h.share), batch.inputs)
        if amplitudes.shape != window.shape:
            raise UserError(
                f"feddg got images of {batch.inputs.shape[1]} pixels for training, but its bank holds amplitudes of "
                "larger ones, whose window is another; expected config.data.crop_size=0, or a smaller method.share"
            )
        return mix_amplitudes(batch.inputs, amplitudes, how, h.share)

    return mixed


ENTRY = Entry(
    "feddg",
    FedDG,
    feddg,
    "amplitude spectra of images exchanged: shares data statistics (Liu et al., 2021)",
    title="FedDG",
    pixels=always,
    needs=(IMAGES, SEVERAL_CLIENTS),
)
