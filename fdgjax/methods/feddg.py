"""FedDG: clients train on their images with the low-frequency amplitudes of other clients' images, too.

    x' = F^-1((1 - lambda) |F(x)| + lambda A at low frequencies, |F(x)| at others; phase of F(x)),  lambda ~ U(0, 1)
    L  = CE(w; x) + gamma CE(w - eta grad CE(w; x); x')

A is drawn for each image: of another client, any at random, one of the amplitudes in the bank. With gamma = 0 it is
FedAvg.

**Statistics of the data are shared**: every client sends the low-frequency amplitudes of some of its images to the
server (at 32 pixels and L = 0.01 the mean brightness of each channel, at 224 pixels 5 x 5 numbers a channel), and
receives those of all clients. Both are counted in the bytes that travel. A round's images are the next ones of the
client's row; the bank keeps each client's last ones. It is empty in the first round, where x' = x.

Liu, Chen, Qin, Dou and Heng, "FedDG: Federated domain generalization on medical image segmentation via episodic
learning in continuous frequency space", CVPR 2021, equations 2 and 3, and equation 5 with eta. Its boundary term is for
segmentation and is left out. An unseen domain is predicted by w.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.weighting import keep_rows
from fdgjax.contract import Batch, Context, Method, Moment, Prepared, PyTree, Samples, Setup, Trained, Variables
from fdgjax.data.federation import Federation
from fdgjax.errors import UserError
from fdgjax.methods.fedavg import FedAvg, Kept, Memory, fedavg
from fdgjax.methods.fedavg import Message as Update
from fdgjax.methods.fedavg import Server as Average
from fdgjax.methods.parts.hyper import hyper
from fdgjax.objectives import also_transformed, low_amplitudes, mix_amplitudes
from fdgjax.registry import lookup

MIXTURES: Mapping[str, Callable[[jax.Array, int], jax.Array]] = {
    "uniform": lambda key, batch: jax.random.uniform(key, (batch,)),
    "full": lambda key, batch: jnp.ones(batch),
}
"""How lambda is drawn, `[batch]`."""


@dataclasses.dataclass(frozen=True)
class FedDG(FedAvg):
    """FedAvg's hyperparameters and the exchange.

    gamma: weight of the loss on mixed images. share: L, half of the exchanged window's share of the spectrum.
    mixture: `uniform`, or `full` (lambda = 1). images: how many a client shows in a round.
    meta_step: eta, of the step before the loss on mixed images, through which no gradient goes; 0 for none.
    """

    gamma: float = hyper(1.0, search=(0.0, 0.5, 1.0), source="Liu et al., official code: 1")
    share: float = hyper(0.01, search=(0.003, 0.01, 0.05, 0.1), source="Liu et al.; official code: 0 to 0.003")
    mixture: str = hyper("uniform", search=tuple(MIXTURES), source="Liu et al., equation 2; official code: full")
    images: int = hyper(16, search=(4, 16, 64), source="official code: an eighth of all")
    meta_step: float = hyper(0.0, search=(0.0, 1e-3), source="Liu et al., official code: 1e-3; docs/deviations.md")


class Bank(NamedTuple):
    """Amplitudes `[clients, images, side, side, channels]`, in the order of the clients' ids, and whose are `there`."""

    amplitudes: jax.Array
    there: jax.Array


class Server(NamedTuple):
    """w with its optimiser's state, and the bank; so is what one round makes of them."""

    average: Average | Update
    bank: Bank


class Sent(NamedTuple):
    """w and the bank."""

    variables: Variables
    bank: Bank


class Message(NamedTuple):
    """A client's update and the amplitudes of its images, `[images, side, side, channels]`."""

    average: Update
    amplitudes: jax.Array


def feddg(setup: Setup, h: FedDG) -> Method:
    """FedAvg on images mixed in frequency space; a client's row holds its place in the bank.

    Raises:
      UserError: an unknown mixture, or a share or number of images that no image has.
    """
    if not (0 <= h.share < 0.5 and h.images > 0):
        raise UserError(f"feddg got share={h.share}, images={h.images}; expected 0 <= share < 0.5 and some images")
    place = Memory(lambda variables: jnp.int32(0), lambda context, trained: context.client.memory)
    objective = also_transformed(setup.model, mixed_with_others(h), h.gamma, h.meta_step)
    base = fedavg(setup, h, objective=objective, memory=place)

    def init(key: jax.Array, federation: Federation) -> tuple[Server, Kept]:
        average, clients = base.init(key, federation)
        images = jax.ShapeDtypeStruct((h.images, *federation.images.shape[1:]), jnp.float32)
        shape, many = jax.eval_shape(lambda x: low_amplitudes(x, h.share), images).shape, len(federation.ids)
        bank = Bank(jnp.zeros((many, *shape)), jnp.zeros(many, bool))
        return Server(average, bank), clients._replace(memory=jnp.argsort(jnp.argsort(federation.ids)))

    def prepare(context: Context, samples: Samples) -> Prepared:
        amplitudes = samples.each(lambda batch: low_amplitudes(batch.images, h.share))
        following = context.round * h.images + jnp.arange(h.images)
        return Prepared(notes=amplitudes[following % jnp.sum(samples.mask).astype(following.dtype)])

    def finish(context: Context, trained: Trained) -> tuple[Message, Kept]:
        message, kept = base.finish(context._replace(sent=context.sent.variables), trained)
        return Message(message, context.notes), kept

    def aggregate(server: Server, clients: Kept, messages: Message, weights: jax.Array) -> tuple[Server, PyTree]:
        average, info = base.aggregate(server.average, clients, messages.average, weights)
        places, seen, (amplitudes, there) = clients.memory, weights > 0, server.bank
        latest = keep_rows(seen, messages.amplitudes, amplitudes[places])
        bank = Bank(amplitudes.at[places].set(latest), there.at[places].set(there[places] | seen))
        return Server(average, bank), info

    def update(server: Server, clients: Kept, step: Server, moment: Moment) -> tuple[Server, Kept]:
        average, clients = base.update(server.average, clients, step.average, moment)
        return Server(average, step.bank), clients

    return base._replace(
        init=init,
        send=lambda server, client: Sent(base.send(server.average, client), server.bank),
        start=lambda sent, client: base.start(sent.variables, client),
        prepare=prepare,
        finish=finish,
        aggregate=aggregate,
        update=update,
        predict=lambda server, client: base.predict(server.average, client),
        unseen=lambda server, clients: base.unseen(server.average, clients),
    )


def mixed_with_others(h: FedDG) -> Callable[[Batch, jax.Array, Context], jax.Array]:
    """A batch's images with amplitudes of other clients; as they are where nobody else's are in the bank."""
    mixture = lookup("mixture", h.mixture, MIXTURES)

    def mixed(batch: Batch, key: jax.Array, context: Context) -> jax.Array:
        (who_key, which_key, how_key), many = jax.random.split(key, 3), len(batch.images)
        amplitudes, there = context.sent.bank
        others = there & (jnp.arange(len(there)) != context.client.memory)
        who = jax.random.categorical(who_key, jnp.where(others, 0.0, -jnp.inf), shape=(many,))
        which = jax.random.randint(which_key, (many,), 0, h.images)
        how = jnp.where(jnp.any(others), mixture(how_key, many), 0)
        return mix_amplitudes(batch.images, amplitudes[who, which], how, h.share)

    return mixed
