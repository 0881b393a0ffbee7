"""RSCFed: clients follow their own teachers, and the server trusts the consensus of several sub-sets of them.

    t     <- decay t + (1 - decay) s after each step of the student s;    both begin as w
    L_i    = r mean_j |softmax(f_s(a(x_j))) - q_j|^2 / K,    q_j ~ softmax(f_t(a'(x_j)))^(1 / T)
    u_i    = s - w;    for each of M sub-sets S of the round's clients:    u_S = DMA of u_i, i in S
    w     <- local epochs at the server from w, on its labels, then  w + sum_S u_S / M

a and a' are two weak views, r a ramp over the rounds. DMA, distance-reweighted model aggregation, weighs u_i by
`n_i exp(-beta |u_i - u| / n_i)`, u being the weighted mean of S (`fdgjax.aggregation.consensus`). The teacher's
BatchNorm statistics are those of its own passes. A client trains once a round, for all sub-sets it is in; it draws its
lots itself, from a key in its row, so that nobody's draw depends on who else there is. No label is guessed. BatchNorm
layers are as in SSFL.

Liang, Lin, Fu, Zhu and Li, "RSCFed: random sampling consensus federated semi-supervised learning", CVPR 2022, Algorithm
1 and sections 3.2 and 3.3. The server takes the place of the labelled clients: docs/deviations.md.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp

from fdgjax.aggregation.consensus import DISTANCES, distance_reweighted, sub_consensus
from fdgjax.contract import Batch, Context, Method, Objective, PyTree, Setup, Trained, Variables
from fdgjax.federation import Federation
from fdgjax.methods.fedavg import Kept, Memory, Message, Server
from fdgjax.methods.hyper import hyper
from fdgjax.methods.ssfl import LabelledServer, labelled_server
from fdgjax.objectives import cross_entropy, mean_teacher, student_of, teacher_of, with_teacher
from fdgjax.registry import lookup
from fdgjax.views import VIEWS, seen

UPLOADS: Mapping[str, Callable[[Variables, float], Variables]] = {
    "student": lambda variables, decay: student_of(variables),
    "teacher": teacher_of,
}
"""Which model a client sends and goes by."""


@dataclasses.dataclass(frozen=True)
class RSCFed(LabelledServer):
    """Hyperparameters of a labelled server, and RSCFed's.

    subsets: M; share: how many of the round's clients are in each, rounded up. beta, distance: of DMA.
    consistency: r in the end; ramp: rounds it takes to get there, `exp(-5 (1 - round / ramp)^2)`, 0 for none.
    temperature: T; decay: of the teacher. upload: a client sends its `student` or its `teacher`.
    augmentation: whose weak view is taken, an entry of `fdgjax.views.VIEWS`.
    """

    class_aware: bool = hyper(False, search=(True, False), source="Liang et al., Algorithm 1")
    subsets: int = hyper(3, search=(1, 3, 5), source="Liang et al., section 4: 3")
    share: float = hyper(0.5, search=(0.5, 1.0), source="Liang et al., section 4: 5 of 10 clients")
    beta: float = hyper(1e4, search=(0.0, 1e2, 1e3, 1e4), source="Liang et al., official code: 1e4")
    distance: str = hyper("joint", search=tuple(DISTANCES), source="Liang et al., section 3.3; official code: tensors")
    consistency: float = hyper(1.0, search=(0.1, 1.0, 10.0), source="Liang et al., official code: 1")
    ramp: int = hyper(30, search=(0, 30), source="Liang et al., official code: 30")
    temperature: float = hyper(0.5, search=(0.5, 1.0), source="Liang et al., section 3.2")
    decay: float = hyper(0.999, search=(0.99, 0.999), source="Liang et al., official code: 0.999")
    upload: str = hyper("student", search=tuple(UPLOADS), source="docs/deviations.md")
    augmentation: str = hyper("shift", search=tuple(VIEWS), source="docs/deviations.md")


def rscfed(setup: Setup, h: RSCFed) -> Method:
    """A labelled server and clients with teachers, aggregated by consensus."""
    view = lookup("augmentation", h.augmentation, VIEWS).weak
    uploaded = lookup("upload", h.upload, UPLOADS)
    lookup("distance", h.distance, DISTANCES)
    follow = mean_teacher(setup.model, view, decay=h.decay, temperature=h.temperature)
    base = labelled_server(
        setup,
        h,
        server=seen(cross_entropy(setup.model), view),
        client=scaled(follow, lambda context: h.consistency * ramp_up(context.round, h.ramp)),
        memory=Memory(lambda variables: no_key(), next_key),
    )

    def init(key: jax.Array, federation: Federation) -> tuple[Server, Kept]:
        server, clients = base.init(key, federation)
        keys = jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(key, i)))(federation.ids)
        return server, clients._replace(memory=keys)

    def start(sent: Variables, client: Kept) -> Variables:
        return with_teacher(base.start(sent, client))

    def finish(context: Context, trained: Trained) -> tuple[Message, Kept]:
        message: Message
        message, kept = base.finish(context, trained._replace(variables=uploaded(trained.variables, h.decay)))
        return message, kept

    def aggregate(server: Server, clients: Kept, messages: Message, weights: jax.Array) -> tuple[Message, PyTree]:
        del server
        rule = partial(distance_reweighted, beta=h.beta, sizes=weights, distance=h.distance)
        members = draw_subsets(clients.memory, weights, h.subsets, h.share)
        update, coefficients = sub_consensus(messages.update, weights, members=members, rule=rule)
        return Message(update, messages.personal), {"weights": coefficients}

    own = base.trained
    return base._replace(
        init=init,
        start=start,
        finish=finish,
        aggregate=aggregate,
        label=lambda path: base.label(path.removeprefix("teacher/")),
        trained=(lambda variables: uploaded(variables, h.decay)) if own else None,
    )


def no_key() -> jax.Array:
    """In the place of a client's key, which follows from its name."""
    return jax.random.key_data(jax.random.key(0))


def next_key(context: Context, trained: Trained) -> jax.Array:
    """The key of a client's lots in this round."""
    del trained
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(context.client.memory), context.round))


def draw_subsets(keys: jax.Array, weights: jax.Array, subsets: int, share: float) -> jax.Array:
    """Who is in which sub-set, bool `[subsets, clients]`: those with the lowest lots, clients with weight zero last.

    Args:
      keys: `[clients, ...]`, each client's.
      weights: `[clients]`.
    """
    lots = jax.vmap(lambda key: jax.random.bits(jax.random.wrap_key_data(key), (subsets,)), out_axes=1)(keys)
    absent = jnp.broadcast_to(weights == 0, lots.shape)
    places = jnp.argsort(jnp.lexsort((lots, absent), axis=1), axis=1)
    return places < max(1, math.ceil(share * len(weights)))


def scaled(objective: Objective, by: Callable[[Context], jax.Array]) -> Objective:
    """The objective times a factor of the context."""

    def times(
        variables: Variables, batch: Batch, key: jax.Array, context: Context
    ) -> tuple[jax.Array, tuple[Variables, dict[str, jax.Array]]]:
        loss, rest = objective(variables, batch, key, context)
        return by(context) * loss, rest

    return times


def ramp_up(round_: jax.Array, over: int) -> jax.Array:
    """`exp(-5 (1 - t)^2)`, t from 0 to 1 over so many rounds."""
    done = jnp.minimum(round_.astype(jnp.float32) / over, 1) if over else jnp.ones(())
    return jnp.exp(-5 * jnp.square(1 - done))
