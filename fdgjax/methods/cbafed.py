"""CBAFed: confident pseudo-labels, with a lower threshold for classes that were rarer in the last round.

    s_c  = K / 10 times the share of class c among the server's labels and the pseudo-labels used in the last round
    t_c  = min(tau + s_c - std(s), upper)
    p_j  = probabilities of w for x_j, once a round;    y_j its most probable class, y'_j the second one
    w_i <- local epochs from w on  {(x_j, y_j): p_j[y_j] > t_{y_j}}  and, of the others,  {(x_j, y'_j): s_{y'_j} < rare}
    w   <- local epochs at the server from w, on its labels, then  w + sum_i n_i (w_i - w) / sum_i n_i
    w   <- a w + (1 - a) w^former  after every R-th round, w^former being the w of R rounds before

K is the number of classes, n_i the number of pseudo-labels that client i used. The server sends the shares s; a client
sends the number of pseudo-labels it used of each class: none where they give no whole batch under `drop_last`.
Pseudo-labels are fixed while a client trains. BatchNorm layers are as in SSFL; with tau below -1, a = 1 and weights by
samples it is SSFL with `guess=argmax`.

Li, Li and Wang, "Class balanced adaptive pseudo labeling for federated semi-supervised learning", CVPR 2023, section 3,
and its official code. The server replaces the labelled clients: docs/deviations.md.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation.weighting import weighted_sum
from fdgjax.contract import (
    Context,
    Method,
    Model,
    Prepared,
    PseudoLabels,
    PyTree,
    Samples,
    ServerStep,
    Setup,
    Variables,
)
from fdgjax.data.federation import label_counts
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, Fresh, aux_of_steps, extend
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.pseudo_labels import argmax_labels, outputs_for_all
from fdgjax.methods.parts.requirements import output_shapes
from fdgjax.methods.parts.setting_presets import SERVED
from fdgjax.methods.parts.sharing import ClientVariables
from fdgjax.methods.ssfl import GUESSERS, LabelledServer, fedavg_with_server
from fdgjax.utils.registry import lookup

OFFICIAL = "Li et al., official code"


@dataclasses.dataclass(frozen=True)
class CBAFed(LabelledServer):
    """Hyperparameters of a labelled server, and CBAFed's.

    guesser: the model that generates pseudo-labels, as in SSFL. threshold: tau. upper: the highest threshold.
    rare: share s_c below which the second most probable class is assigned.
    by_use: clients are weighted by the number of pseudo-labels they used, otherwise by `weighting`.
    residual: a, the new model's weight in the residual connection. period: R, in rounds. A residual of 1 or a period of
      0 switches the connection off.
    """

    guesser: str = hyper("server", search=tuple(GUESSERS), source="UAP, section 4.2: the server model")
    class_aware: bool = hyper(False, search=(True, False), source=OFFICIAL)
    threshold: float = hyper(0.84, most=1, search=(0.6, 0.84, 0.95), source=f"{OFFICIAL}: 0.84")
    upper: float = hyper(0.95, most=1, search=(0.9, 0.95), source=f"{OFFICIAL}: 0.95, for SVHN 0.9")
    rare: float = hyper(0.03, most=1, search=(0.0, 0.03), source=f"{OFFICIAL}: 0.03")
    by_use: bool = hyper(True, search=(True, False), source=OFFICIAL)
    residual: float = hyper(0.5, most=1, search=(0.5, 1.0), source=f"{OFFICIAL}: halves")
    period: int = hyper(5, search=(0, 5), source=f"{OFFICIAL}: 5")


class Balance(NamedTuple):
    """What the server keeps besides w.

    known: counts `[classes]` of its own labels. counts: those plus the pseudo-labels that clients used last round.
    former: w^former, empty without the residual connection.
    """

    known: jax.Array
    counts: jax.Array
    former: Variables


def cbafed(setup: Setup, h: CBAFed) -> Method:
    """SSFL on pseudo-labels above class-balanced thresholds, with residual connections between rounds."""
    base = fedavg_with_server(setup, h)
    mixes = h.period > 0 and h.residual != 1

    def at_server(fresh: Fresh) -> Balance:
        data = fresh.federation
        classes = output_shapes(setup.model, data.input_shape).logits.shape[-1]
        known = label_counts(data.labels, data.server, classes)[0]
        return Balance(known, known, fresh.server.variables if mixes else {})

    extended = extend(
        base, server=at_server, sent=lambda server, row: shares_of(server.more.counts), message=aux_of_steps
    )

    def aggregate(
        server: Extended, clients: ClientVariables, messages: Extended, weights: jax.Array
    ) -> tuple[Extended, PyTree]:
        there = (weights > 0).astype(jnp.float32)
        used = there * jnp.sum(messages.more, axis=1) if h.by_use else weights
        average, coefficients = extended.aggregate(server, clients, messages, used)
        return Extended(average, weighted_sum(messages.more, there)), coefficients

    def update(
        server: Extended, clients: ClientVariables, step: Extended, server_step: ServerStep
    ) -> tuple[Extended, ClientVariables]:
        server, clients = extended.update(server, clients, step.base, server_step)
        server = server._replace(more=server.more._replace(counts=server.more.known + step.more))
        return (connected(server, h, server_step.round) if mixes else server), clients

    return extended._replace(prepare=balanced_labels(setup.model, h), aggregate=aggregate, update=update)


def shares_of(counts: jax.Array) -> jax.Array:
    """s `[classes]` from label counts; with ten classes s_c is the share of class c."""
    return counts / jnp.maximum(jnp.sum(counts), 1) * (len(counts) / 10)


def class_thresholds(shares: jax.Array, h: CBAFed) -> jax.Array:
    """t `[classes]`; std(s) is the sample standard deviation (divisor K - 1)."""
    return jnp.minimum(h.threshold + shares - jnp.std(shares, ddof=1), jnp.asarray(h.upper))


def balanced_labels(model: Model, h: CBAFed) -> Callable[[Context, Samples], Prepared]:
    """The most probable class if it is above its threshold, else the second one if that class is rare; the note is the
    number of pseudo-labels used of each class."""
    guesser = lookup("guesser", h.guesser, GUESSERS)

    def prepare(context: Context, samples: Samples) -> Prepared:
        inside, shares = context._replace(sent=context.sent.base), context.sent.more
        pseudo_labels, used = choose_labels(outputs_for_all(model, guesser(inside), samples).logits, shares, h)
        label_weight = jnp.where(used, samples.mask, 0)
        return Prepared(
            pseudo_labels._replace(label_weight=label_weight),
            aux=jnp.zeros_like(shares).at[pseudo_labels.labels].add(label_weight),
        )

    return prepare


def choose_labels(logits: jax.Array, shares: jax.Array, h: CBAFed) -> tuple[PseudoLabels, jax.Array]:
    """Pseudo-labels, and which of them are used; logits `[n, K]`, shares `[K]`."""
    first = argmax_labels(logits)
    sure = first.confidence > class_thresholds(shares, h)[first.labels]
    is_first = jax.nn.one_hot(first.labels, logits.shape[1], dtype=bool)
    labels = jnp.argmax(jnp.where(is_first, -jnp.inf, logits), axis=1).astype(jnp.int32)
    probable = jnp.take_along_axis(jax.nn.softmax(logits), labels[:, None], axis=1)[:, 0]
    instead = ~sure & (shares[labels] < h.rare)
    second = PseudoLabels(labels, probable, first.label_weight)
    return optax.tree.where(instead, second, first), sure | instead


def connected(server: Extended, h: CBAFed, round_: jax.Array) -> Extended:
    """The residual connection, in every R-th round; round 0 only stores w, as there is no former model yet."""
    average, balance = server
    kept = round_ % h.period == 0
    share = jnp.where(kept & (round_ > 0), jnp.asarray(h.residual), 1.0)
    mix = lambda new, old: share * new + (1 - share) * old  # noqa: E731
    variables = jax.tree.map(mix, average.variables, balance.former)
    former = optax.tree.where(kept, variables, balance.former)
    return Extended(average._replace(variables=variables), balance._replace(former=former))


ENTRY = Entry(
    "cbafed",
    CBAFed,
    cbafed,
    "labelled server, class-balanced thresholds (Li et al., 2023)",
    title="CBAFed",
    protocol="labelled_server",
    presets=SERVED,
)
