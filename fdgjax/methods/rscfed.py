"""RSCFed: clients learn from mean teachers, and the server aggregates the consensus of several random subsets.

    t     <- a t + (1 - a) s before each step of the student s, which starts as w;    a = min(n / (n + 1), decay)
    L_i    = r mean_j |softmax(f_s(a(x_j))) - q_j|^2,    q_j ~ softmax(f_t(a'(x_j)))^(1 / T)
    u_i    = s - w;    for each of M subsets S  of the round's clients:    u_S = DMA of u_i, i in S
    w     <- local epochs at the server from w, on its labels, then  w + sum_S u_S / M

a and a' are two weak views; n counts the client's steps over all rounds, as its teacher stays at the client. DMA,
distance-reweighted model aggregation, weights u_i by `n_i exp(-beta |u_i - u| / n_i)`, u being the weighted mean of S
(`fdgjax.aggregation.subsets`). A client trains once a round, for all subsets it is in. Subsets are drawn with keys from
the clients' rows, so that a client's draws do not depend on the other clients. There are no pseudo-labels. BatchNorm
layers are as in SSFL. The optimiser is SGD, whose steps are proportional to r; Adam's would not depend on it.

Liang, Lin, Fu, Zhu and Li, "RSCFed: random sampling consensus federated semi-supervised learning", CVPR 2022, and its
official code. The server replaces the labelled clients: docs/deviations.md.
"""

import dataclasses
import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation import distance_reweighted, mean_of_subsets
from fdgjax.aggregation.subsets import DISTANCES
from fdgjax.contract import Context, Method, PyTree, Setup, Trained, Variables
from fdgjax.data.augmentations.weak_strong import VIEWS
from fdgjax.methods.fedavg import Message
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, extend
from fdgjax.methods.parts.hyper import SCHEDULES, hyper, momentum_of
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.methods.parts.setting_presets import SERVED_BY_SGD
from fdgjax.methods.parts.sharing import ClientVariables
from fdgjax.methods.ssfl import LabelledServer, fedavg_with_server
from fdgjax.objectives import cross_entropy, mean_teacher, new_teacher, on_view, student_of
from fdgjax.utils.registry import lookup

OFFICIAL = "Liang et al., official code"


@dataclasses.dataclass(frozen=True)
class RSCFed(LabelledServer):
    """Hyperparameters of a labelled server, and RSCFed's.

    subsets: M, their number. share: of the round's clients in each subset, rounded up. beta: of DMA's weights.
      distance: the norm of u_i - u in DMA's weights, an entry of `fdgjax.aggregation.subsets.DISTANCES`.
    consistency: r, factor on the loss. temperature: T, for the teacher's predictions. decay: the teacher's, at most.
    augmentation: the augmentation whose weak view is taken, an entry of `fdgjax.data.augmentations.weak_strong.VIEWS`.
    labelled_learning_rate: of the training at the server; 0 for the clients' rate.
    """

    client_learning_rate: float = hyper(
        0.021, above=0, search=(0.021, 0.002), source=f"{OFFICIAL}: 0.021, unlabelled clients"
    )
    client_momentum: float = hyper(
        0.9, most=1, search=(0.0, 0.9), source=f"{OFFICIAL}: 0.9", when=momentum_of("client_optimizer")
    )
    client_weight_decay: float = hyper(5e-4, search=(0.0, 5e-4), source=f"{OFFICIAL}: 5e-4")
    client_schedule: str = hyper("constant", search=tuple(SCHEDULES), source=OFFICIAL)
    client_clip: float = hyper(5.0, search=(0.0, 5.0), source=f"{OFFICIAL}: 5")
    labelled_learning_rate: float = hyper(0.0, search=(0.0, 0.03), source=f"{OFFICIAL}: 0.03")
    keep_optimizer: bool = hyper(True, search=(True, False), source=OFFICIAL)
    class_aware: bool = hyper(False, search=(True, False), source=OFFICIAL)
    subsets: int = hyper(3, least=1, search=(1, 3, 5), source=f"{OFFICIAL}: 3")
    share: float = hyper(0.5, above=0, most=1, search=(0.5, 1.0), source=f"{OFFICIAL}: 5 of 10 clients")
    beta: float = hyper(1e4, search=(0.0, 1e2, 1e3, 1e4), source=f"{OFFICIAL}: 1e4")
    distance: str = hyper("joint", search=tuple(DISTANCES), source="Liang et al.; official code: tensors")
    consistency: float = hyper(0.02, search=(0.02, 0.1, 1.0), source=f"{OFFICIAL}: 0.02")
    temperature: float = hyper(0.5, above=0, search=(0.5, 1.0), source=f"{OFFICIAL}: 0.5")
    decay: float = hyper(0.999, most=1, search=(0.99, 0.999), source=f"{OFFICIAL}: 0.999")
    augmentation: str = hyper("shift", search=tuple(VIEWS), source="docs/deviations.md")


class Own(NamedTuple):
    """What stays at a client: its teacher, and the key of its draws."""

    teacher: Variables
    key: jax.Array


def rscfed(setup: Setup, h: RSCFed) -> Method:
    """A labelled server and clients with teachers, aggregated by consensus."""
    view = lookup("augmentation", h.augmentation, VIEWS).weak
    lookup("distance", h.distance, DISTANCES)
    base = fedavg_with_server(
        setup,
        h,
        server=on_view(cross_entropy(setup.model), view),
        trained_by=dataclasses.replace(h, client_learning_rate=h.labelled_learning_rate or h.client_learning_rate),
        client=mean_teacher(setup.model, view, decay=h.decay, temperature=h.temperature, strength=h.consistency),
    )

    def begin(fresh: Fresh) -> Own:
        keys = jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(fresh.key, i)))(fresh.federation.ids)
        return Own(jax.vmap(new_teacher)(fresh.models()), keys)

    def finish(context: Context, trained: Trained) -> tuple[Message, ClientVariables]:
        return base.finish(context, trained._replace(variables=student_of(trained.variables)))

    extended = extend(base._replace(finish=finish), row=RowExtension(begin, next_own))

    def aggregate(
        server: ServerState, clients: Extended, messages: Message, weights: jax.Array
    ) -> tuple[Message, PyTree]:
        del server
        rule = partial(distance_reweighted, beta=h.beta, sizes=weights, distance=h.distance)
        members = draw_subsets(clients.more.key, weights, h.subsets, h.share)
        update, coefficients = mean_of_subsets(messages.update, weights, members=members, rule=rule)
        return Message(update, messages.personal), {"weights": coefficients}

    return extended._replace(
        start=lambda sent, client: base.start(sent, client.base) | {"teacher": client.more.teacher},
        aggregate=aggregate,
        label=lambda path: "local" if path.startswith("teacher/") else base.label(path),
        trained=student_of if base.trained else None,
    )


ROUNDING = 9
"""Decimals to which a number of clients is rounded, so that .55 of 20 are 11 and not a little more."""


def next_own(context: Context, trained: Trained) -> Own:
    """The teacher after training, and the key of this round's draws."""
    key = jax.random.fold_in(jax.random.wrap_key_data(context.client.more.key), context.round)
    return Own(trained.variables["teacher"], jax.random.key_data(key))


def draw_subsets(keys: jax.Array, weights: jax.Array, subsets: int, share: float) -> jax.Array:
    """Which clients are in which subset, bool `[subsets, clients]`: those with the lowest draws; clients of weight zero
    come last.

    Args:
      keys: `[clients, ...]`, each client's.
      weights: `[clients]`.
    """
    lots = jax.vmap(lambda key: jax.random.bits(jax.random.wrap_key_data(key), (subsets,)), out_axes=1)(keys)
    absent = jnp.broadcast_to(weights == 0, lots.shape)
    places = jnp.argsort(jnp.lexsort((lots, absent), axis=1), axis=1)
    return places < max(1, math.ceil(round(share * len(weights), ROUNDING)))


ENTRY = Entry(
    "rscfed",
    RSCFed,
    rscfed,
    "labelled server, mean teachers, sub-consensus (Liang et al., 2022)",
    title="RSCFed",
    pixels=lambda h: h.augmentation != "none",
    protocol="labelled_server",
    presets=SERVED_BY_SGD,
)
