"""CBAFed: pseudo-labels above thresholds that are lower for the classes that were rarer among them.

    s_c  = share of class c among the server's labels and all clients' trusted pseudo-labels of the last round
    t_c  = tau + clip(s_c - std(s), -below, above)
    y_j, p_j <- guess(w, x_j), once a round;   w_i <- local epochs from w on (x_j, y_j) with p_j >= t_{y_j}
    w   <- local epochs at the server from w, on its labels, then  w + sum_i p_i (w_i - w)
    w   <- a w + (1 - a) w^former  after every R-th round, w^former being w after the R-th round before

The thresholds travel to the clients, the counts of their trusted labels to the server. Labels stay as they are while a
client trains (fixed pseudo-labels). BatchNorm layers are as in SSFL. With a = 1 and tau = below = above = 0 it is SSFL
with `guess=argmax`.

Li, Li and Wang, "Class balanced adaptive pseudo labeling for federated semi-supervised learning", CVPR 2023, section 3.
The server takes the place of the labelled clients: docs/deviations.md.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.weighting import weighted_sum
from fdgjax.contract import Context, Method, Moment, Prepared, PyTree, Samples, Setup, Stage, Trained, Variables
from fdgjax.federation import Federation
from fdgjax.methods.fedavg import Kept
from fdgjax.methods.fedavg import Message as Update
from fdgjax.methods.fedavg import Server as Average
from fdgjax.methods.hyper import hyper
from fdgjax.methods.requirements import output_shapes, with_features
from fdgjax.methods.ssfl import GUESSES, SSFL, guess_labels, labelled_server
from fdgjax.objectives import cross_entropy


@dataclasses.dataclass(frozen=True)
class CBAFed(SSFL):
    """SSFL's hyperparameters, and CBAFed's.

    threshold: tau; below, above: how far a class's threshold may be from it.
    residual: a, the new model's share; period: R, in rounds. 1 or 0 leaves the model alone.
    """

    guess: str = hyper("argmax", search=tuple(GUESSES), source="Li et al., section 3")
    class_aware: bool = hyper(False, search=(True, False), source="Li et al., section 3")
    threshold: float = hyper(0.84, search=(0.0, 0.6, 0.84, 0.95), source="docs/deviations.md")
    below: float = hyper(0.1, search=(0.0, 0.05, 0.1, 1.0), source="docs/deviations.md")
    above: float = hyper(0.1, search=(0.0, 0.05, 0.1, 1.0), source="docs/deviations.md")
    residual: float = hyper(0.5, search=(0.5, 0.8, 1.0), source="docs/deviations.md")
    period: int = hyper(5, search=(0, 5, 10), source="docs/deviations.md")


class Server(NamedTuple):
    """w; counts `[classes]` of the server's labels, and with the clients' of the last round; the former w."""

    average: Average
    known: jax.Array
    counts: jax.Array
    former: Variables


class Sent(NamedTuple):
    """w and the thresholds t, `[classes]`."""

    variables: Variables
    thresholds: jax.Array


class Message(NamedTuple):
    """A client's update, or their mean, and counts of trusted labels, `[classes]`, or their sum."""

    update: Update
    counts: jax.Array


def cbafed(setup: Setup, h: CBAFed) -> Method:
    """SSFL on pseudo-labels above class-balanced thresholds, with residual connections between rounds."""
    plain = cross_entropy(setup.model)
    prepare = above_thresholds(guess_labels(setup.model, h))
    base = labelled_server(setup, h, server=plain, client=plain, prepare=prepare)
    mixes = h.period > 0 and h.residual != 1

    def init(key: jax.Array, federation: Federation) -> tuple[Server, Kept]:
        average, clients = base.init(key, federation)
        classes = output_shapes(setup.model, federation.images.shape[1:]).logits.shape[-1]
        places, length = federation.server.places[0], federation.server.length[0]
        real = (jnp.arange(len(places)) < length).astype(jnp.float32)
        known = jnp.zeros(classes).at[federation.labels[places]].add(real)
        return Server(average, known, known, average.variables if mixes else {}), clients

    def send(server: Server, client: Kept) -> Sent:
        return Sent(base.send(server.average, client), thresholds(server.counts, h))

    def finish(context: Context, trained: Trained) -> tuple[Message, Kept]:
        message, kept = base.finish(context._replace(sent=context.sent.variables), trained)
        return Message(message, context.notes), kept

    def aggregate(server: Server, clients: Kept, messages: Message, weights: jax.Array) -> tuple[Message, PyTree]:
        average, coefficients = base.aggregate(server.average, clients, messages.update, weights)
        return Message(average, weighted_sum(messages.counts, (weights > 0).astype(jnp.float32))), coefficients

    def update(server: Server, clients: Kept, step: Message, moment: Moment) -> tuple[Server, Kept]:
        average, clients = base.update(server.average, clients, step.update, moment)
        server = server._replace(average=average, counts=server.known + step.counts)
        return (connected(server, h, moment.round) if mixes else server), clients

    method = base._replace(
        init=init,
        send=send,
        start=lambda sent, client: base.start(sent.variables, client),
        finish=finish,
        aggregate=aggregate,
        update=update,
        predict=lambda server, client: base.predict(server.average, client),
        unseen=lambda server, clients: base.unseen(server.average, clients),
        stage=on_average(base.stage) if base.stage else None,
    )
    return with_features(method, setup.model, "cbafed")


def thresholds(counts: jax.Array, h: CBAFed) -> jax.Array:
    """t `[classes]`; the standard deviation is over the classes (1 / K)."""
    shares = counts / jnp.maximum(jnp.sum(counts), 1)
    return h.threshold + jnp.clip(shares - jnp.std(shares), -h.below, h.above)


def above_thresholds(guess: Callable[[Context, Samples], Prepared]) -> Callable[[Context, Samples], Prepared]:
    """Labels are trusted that are as sure as their class's threshold; the note is how many of each class."""

    def prepare(context: Context, samples: Samples) -> Prepared:
        labels = guess(context._replace(sent=context.sent.variables), samples).guess
        assert labels is not None
        limits = context.sent.thresholds
        trust = jnp.where(labels.confidence >= limits[labels.labels], samples.mask, 0)
        counts = jnp.zeros_like(limits).at[labels.labels].add(trust)
        return Prepared(labels._replace(trust=trust), notes=counts)

    return prepare


def connected(server: Server, h: CBAFed, round_: jax.Array) -> Server:
    """The residual connection, if this is the round for it."""
    now = (round_ + 1) % h.period == 0
    mix = lambda new, old: jnp.where(now, h.residual * new + (1 - h.residual) * old, new)  # noqa: E731
    variables = jax.tree.map(mix, server.average.variables, server.former)
    former = jax.tree.map(lambda new, old: jnp.where(now, new, old), variables, server.former)
    return server._replace(average=server.average._replace(variables=variables), former=former)


def on_average(stage: Stage) -> Stage:
    """FedAvg's training at the server, in this server's state."""
    return stage._replace(
        begin=lambda server: stage.begin(server.average),
        finish=lambda server, trained: server._replace(average=stage.finish(server.average, trained)),
    )
