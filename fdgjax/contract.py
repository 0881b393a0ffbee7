"""The contract: a federated method is a value of pure functions, and the engine does everything else.

A method says only what differs from federated averaging. Its state lives in two pytrees, `server` and `clients`
(stacked, client axis first); whatever a run needs to go on exactly is in them and nowhere else. Functions named
for one client see one row of `clients`; the engine adds the client axis.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import optax

from fdgjax.federation import Federation

PyTree = Any
Variables = dict[str, Any]
"""Flax variables of one client model: `{"params": ..., "batch_stats": ...}`."""


class Batch(NamedTuple):
    """A minibatch of one client.

    images: float32 `[batch, height, width, channels]` in [-1, 1].
    labels: int32 `[batch]`.
    mask: float32 `[batch]`, 1 for a sample, 0 for the padding of a last partial batch.
    """

    images: jax.Array
    labels: jax.Array
    mask: jax.Array


class Model(NamedTuple):
    """A client model as two pure functions.

    init: `(key) -> variables`.
    apply: `(variables, images, train, key) -> (logits [batch, classes], changed collections)`; the second is empty
      where nothing is mutable, and `key` feeds dropout (unused when `train` is false).
    """

    init: Callable[[jax.Array], Variables]
    apply: Callable[[Variables, jax.Array, bool, jax.Array], tuple[jax.Array, Variables]]


class Execution(NamedTuple):
    """How a function of one client is run over stacked clients; all choices give the same numbers, to rounding.

    axis: `"vmap"` (all at once), `"map"` (one at a time inside the same program), `"chunk"` (`chunk` at a time) or
      `"auto"` (`map` on a CPU, `vmap` elsewhere). On several devices, each runs its own clients in this way.
    chunk: clients at a time for `"chunk"`.
    devices: over how many devices the clients are split.
    seed_axis: how several seeds are run, each with all its clients: `"map"`, `"vmap"` or `"auto"`.
    """

    axis: str = "auto"
    chunk: int = 8
    devices: int = 1
    seed_axis: str = "auto"


class Setup(NamedTuple):
    """What a method is built for: facts that do not depend on the data, so that one method serves every seed's split.

    model: the client model.
    clients: number of clients that train.
    rounds: communication rounds the experiment will run.
    execution: how clients are run, for a method that goes through them outside local training.
    """

    model: Model
    clients: int
    rounds: int
    execution: Execution = Execution()


class Context(NamedTuple):
    """What a client knows while it trains: the server's broadcast state, its own row, and what it started from."""

    server: PyTree
    client: PyTree
    received: Variables


class Moment(NamedTuple):
    """When a server update happens: `round` (int32, from 0) and a key of its own."""

    round: jax.Array
    key: jax.Array


class Objective(Protocol):
    """A local training objective, averaged over the unmasked samples of the batch.

    Returns `(loss, (changed collections, info))`; the gradient is taken by `variables["params"]`.
    """

    def __call__(
        self, variables: Variables, batch: Batch, key: jax.Array, context: Context
    ) -> tuple[jax.Array, tuple[Variables, dict[str, jax.Array]]]:
        """The loss of one batch."""
        ...


class Rule(Protocol):
    """An aggregation rule: `updates` and `weights` carry a leading client axis, the returned update does not."""

    def __call__(self, updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        """The aggregate and the coefficients."""
        ...


class Method(NamedTuple):
    """A federated method.

    One round, for the clients that take part:

        received_i            = start(server, client_i)
        trained_i             = local epochs of `optimizer` on `objective`, from received_i
        message_i, client_i   = finish(context_i, trained_i)
        aggregate, info       = aggregate(server, clients, messages, weights)
        server, clients       = update(server, clients, aggregate, moment)

    init: `(key, federation) -> (server, clients)`, a row of `clients` for each of `federation.ids`.
    start: what a client starts from.
    objective: the local loss.
    optimizer: the local optimiser, over `params`.
    finish: what a client sends (`message`) and what it keeps (its new row).
    aggregate: messages `[clients, ...]` to one aggregate, with the coefficients used as diagnostics.
    update: what the server does with the aggregate.
    predict: the variables that predict for client i.
    unseen: the variables that predict for an unseen domain, stacked `[models, ...]`; accuracies are averaged over
      the models.
    label: the fate of each variable by its path (`"params/head/kernel"`): `"shared"` (one value for all),
      `"personal"` (sent to the server, each client receives its own) or `"local"` (never leaves the client).
    weights: aggregation weights from the clients' numbers of training samples, `[clients] -> [clients]`.
    keep_optimizer: whether a client's optimiser state outlives the round.
    pooled: whether all training data are gathered at one client (the non-federated reference).
    """

    init: Callable[[jax.Array, Federation], tuple[PyTree, PyTree]]
    start: Callable[[PyTree, PyTree], Variables]
    objective: Objective
    optimizer: optax.GradientTransformation
    finish: Callable[[Context, Variables], tuple[PyTree, PyTree]]
    aggregate: Callable[[PyTree, PyTree, PyTree, jax.Array], tuple[PyTree, PyTree]]
    update: Callable[[PyTree, PyTree, PyTree, Moment], tuple[PyTree, PyTree]]
    predict: Callable[[PyTree, PyTree], Variables]
    unseen: Callable[[PyTree, PyTree], Variables]
    label: Callable[[str], str]
    weights: Callable[[jax.Array], jax.Array]
    keep_optimizer: bool = False
    pooled: bool = False
