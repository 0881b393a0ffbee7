"""The contract: a federated method is a value of pure functions, and the engine does everything else.

A method defines only what differs from federated averaging. Its state lives in two pytrees, `server` and `clients`
(stacked, client axis first), which hold everything of the method that a run needs to continue exactly. Functions
named for one client see one row of `clients`; the engine adds the client axis.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import optax
from jax.sharding import Mesh

from fdgjax.data.federation import Federation
from fdgjax.variables import PyTree, Variables

ObjectiveResult = tuple[jax.Array, Variables]
"""What an objective returns, `(loss, changed collections)`, in the form that `jax.value_and_grad` with `has_aux=True`
expects."""


class Batch(NamedTuple):
    """A minibatch of one client.

    images: float32 `[batch, height, width, channels]` in [-1, 1], or the features `[batch, ...]` that a frozen trunk
      made of them, which the model starts from.
    labels: int32 `[batch]`.
    mask: float32 `[batch]`, 1 for a sample, 0 for the padding of a last partial batch.
    trust: float32 `[batch]`, the label's weight in the loss: 1 for a true label, in (0, 1] for a pseudo-label.
    others: as many further samples of the client, drawn with replacement from all of them, where the method asks for
      them (`Method.others`); else empty.
    domains: int32 `[batch]`, the domain of each sample, for methods on pooled data; no client of a federation needs to
      know the domains of its samples, and no federated method looks at them. Empty in a batch made without domains.
    """

    images: jax.Array
    labels: jax.Array
    mask: jax.Array
    trust: jax.Array | float = 1.0
    others: "Batch | tuple[()]" = ()
    domains: jax.Array | tuple[()] = ()


class Output(NamedTuple):
    """A model's outputs for a batch.

    logits: `[batch, classes]`.
    features: the last layer's input, `[batch, m]`; empty, `[batch, 0]`, for a model without features.
    more: a dict of further outputs, `[batch, ...]` each; empty for most models.
    """

    logits: jax.Array
    features: jax.Array
    more: PyTree = ()


class Model(NamedTuple):
    """A client model as two pure functions.

    init: `(key) -> variables`.
    apply: `(variables, images, train, key) -> (output, changed collections)`; the second is empty where nothing is
      mutable, and `key` feeds dropout (unused when `train` is false).
    """

    init: Callable[[jax.Array], Variables]
    apply: Callable[[Variables, jax.Array, bool, jax.Array], tuple[Output, Variables]]


class Execution(NamedTuple):
    """How a function of one client is run over stacked clients; all choices give the same results, up to rounding.

    axis: `"vmap"` (all at once), `"map"` (one at a time inside the same program), `"chunk"` (`chunk` at a time) or
      `"auto"` (`map` on a CPU, `vmap` elsewhere). On several devices, each runs its own clients in this way.
    chunk: clients at a time for `"chunk"`.
    devices: number of devices that the clients are split over.
    seed_axis: how several seeds are run, each with all its clients: `"map"`, `"vmap"` or `"auto"`.
    unroll: minibatches written out at a time, where clients run together and their number is known (not `"map"`).
    mesh: the caller's own devices, as many as `devices`; clients are split over all its axes. None for JAX's first.
    """

    axis: str = "auto"
    chunk: int = 8
    devices: int = 1
    seed_axis: str = "auto"
    unroll: int = 1
    mesh: Mesh | None = None


class Setup(NamedTuple):
    """What a method is built for: facts that do not depend on the data, so that one method serves every seed's split.

    model: the client model.
    clients: number of clients that train.
    rounds: communication rounds the experiment will run.
    execution: how clients are run, for a method that maps over them outside local training.
    domains: number of domains of the data set, the unseen one included; 0 where they are not known.
    """

    model: Model
    clients: int
    rounds: int
    execution: Execution = Execution()
    domains: int = 0


class Guess(NamedTuple):
    """Pseudo-labels: labels that a model assigns to samples; `[samples]` each.

    labels: int32. confidence: the model's probability of the label, in [0, 1], for the records. trust: the label's
    weight in the loss; 0 leaves the sample out of the epochs, which pass over the other samples alone.
    """

    labels: jax.Array
    confidence: jax.Array
    trust: jax.Array


class Each(Protocol):
    """Applies a function to all samples of a client, minibatch by minibatch."""

    def __call__(self, function: Callable[[Batch], PyTree], guess: Guess | None = None) -> PyTree:
        """`function` of each minibatch, `[batch, ...]`, as one array for all samples, `[longest, ...]`; with the labels
        of `guess` where it is given."""
        ...


class Samples(NamedTuple):
    """A client's samples, in the order of its row, padded at the end.

    mask: float32 `[longest]`, 1 for a sample, 0 for padding. each: applies a function to them.
    """

    mask: jax.Array
    each: Each


class Prepared(NamedTuple):
    """What a client computes before it trains.

    guess: the labels to train on, `[longest]` in the order of its samples; None for those of the data.
    notes: further results, which the objective and `finish` read from the context.
    """

    guess: Guess | None = None
    notes: PyTree = ()


class Context(NamedTuple):
    """What a client knows while it trains: what the server sent, its own row, the variables it started from, the round,
    and the notes of `prepare`.

    When a model is adapted to an unseen domain, `sent` and `client` are empty. In training at the server, `client` is
    empty and `sent` is the server's own state.
    """

    sent: PyTree
    client: PyTree
    received: Variables
    round: jax.Array
    notes: PyTree = ()


class Trained(NamedTuple):
    """One client after its local epochs: variables, optimiser state, the mean loss over the samples it saw, and the
    number of optimiser steps (int32)."""

    variables: Variables
    optimizer: PyTree
    loss: jax.Array
    steps: jax.Array


class Moment(NamedTuple):
    """When a server update happens: `round` (int32, from 0) and a key of its own."""

    round: jax.Array
    key: jax.Array


class Objective(Protocol):
    """A local training objective, averaged over the unmasked samples of the batch.

    Returns `(loss, changed collections)`; the gradient is taken by `variables["params"]`.
    """

    def __call__(self, variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        """The loss of one batch."""
        ...


class Rule(Protocol):
    """An aggregation rule: `updates` and `weights` carry a leading client axis, the returned update does not."""

    def __call__(self, updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        """The aggregate and the coefficients."""
        ...


class Adaptation(NamedTuple):
    """How a model is adapted to an unseen domain without its labels, before it is tested there.

    objective: the loss over the domain's samples, whose labels are hidden: all zero.
    optimizer: the optimiser, over `params`.
    epochs: passes over the samples.
    finish: `(before, after) -> variables`, those that are tested.
    """

    objective: Objective
    optimizer: optax.GradientTransformation
    epochs: int
    finish: Callable[[Variables, Variables], Variables]


Order = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]
"""The order of an epoch's samples: `(key, labels [longest], domains [longest], count) -> positions [longest]`, of which
the first `count` are used."""


class Stage(NamedTuple):
    """Training at the server, on labelled samples of its own (`Federation.server`), once a round.

    begin: the variables to train, from the server's state.
    objective, optimizer: the loss and the optimiser, as for a client; the optimiser's state is reset each round.
    finish: the server's state after this training.
    order: the order of an epoch's samples; None shuffles them.
    last: whether it runs at the end of a round, after the server update, rather than at its beginning.
    """

    begin: Callable[[PyTree], Variables]
    objective: Objective
    optimizer: optax.GradientTransformation
    finish: Callable[[PyTree, Trained], PyTree]
    order: Order | None = None
    last: bool = False


class Part(NamedTuple):
    """A part of a value: `of` takes it out of the whole, `put` returns the whole with another in its place."""

    of: Callable[[PyTree], PyTree]
    put: Callable[[PyTree, PyTree], PyTree]


WHOLE = Part(lambda whole: whole, lambda whole, part: part)


class Method(NamedTuple):
    """A federated method.

    One round, for the clients that take part:

        sent_i                = send(server, client_i)
        received_i            = start(sent_i, client_i)
        labels_i, notes_i     = prepare(context_i, samples_i)
        trained_i             = local epochs of `optimizer` on `objective`, from received_i
        message_i, client_i   = finish(context_i, trained_i)
        aggregate, info       = aggregate(server, clients, messages, weights)
        server, clients       = update(server, clients, aggregate, moment)

    A client's row holds all state that is kept for it, by the client or by the server on its behalf. Only `sent_i` and
    `message_i` travel between server and client; their sizes are the reported traffic.

    init: `(key, federation) -> (server, clients)`, a row of `clients` for each of `federation.ids`.
    send: what the server sends to a client.
    start: the variables a client starts from, made of what it was sent and its row.
    objective: the local loss.
    optimizer: the local optimiser, over `params`; it may take the extra arguments `round` and `context`.
    finish: what a client sends (`message`) and what it keeps (its new row).
    aggregate: messages `[clients, ...]` to one aggregate, with the coefficients used as diagnostics.
    update: the server's and the clients' new states, given the aggregate.
    predict: the variables that predict for client i.
    unseen: the variables that predict for an unseen domain, stacked `[models, ...]`; accuracies are averaged over
      the models.
    label: how each variable that `start` returns is shared, by its path (`"params/head/kernel"`): `"shared"` (one value
      for all), `"personal"` (sent to the server, each client receives its own) or `"local"` (never leaves the client).
    weights: aggregation weights from the clients' numbers of training samples, `[clients] -> [clients]`.
    prepare: what a client computes before it trains, such as pseudo-labels; None for nothing.
    stage: training at the server, before or after the steps above; None where the server has no data.
    adapt: how the models for an unseen domain are adapted to it; None where they are not.
    trained: from the variables a client just trained, those that predict for it; None where all clients share one
      model.
    updates: the part of a message that says how far the client's training moved the variables it received, zero where
      it did not; the rest of a message is statistics and variables of the client's own.
    averaged: whether `aggregate` makes one combination of these updates for all clients, equal to them where they are
      all equal, so that another combination can take its place.
    others: whether a client's minibatches bring as many further samples along, drawn from all its samples.
    keep_optimizer: whether a client's optimiser state outlives the round.
    pooled: whether all training data are gathered at one client (the non-federated reference).
    order: the order of an epoch's samples at a client; None shuffles them.
    """

    init: Callable[[jax.Array, Federation], tuple[PyTree, PyTree]]
    send: Callable[[PyTree, PyTree], PyTree]
    start: Callable[[PyTree, PyTree], Variables]
    objective: Objective
    optimizer: optax.GradientTransformation
    finish: Callable[[Context, Trained], tuple[PyTree, PyTree]]
    aggregate: Callable[[PyTree, PyTree, PyTree, jax.Array], tuple[PyTree, PyTree]]
    update: Callable[[PyTree, PyTree, PyTree, Moment], tuple[PyTree, PyTree]]
    predict: Callable[[PyTree, PyTree], Variables]
    unseen: Callable[[PyTree, PyTree], Variables]
    label: Callable[[str], str]
    weights: Callable[[jax.Array], jax.Array]
    prepare: Callable[[Context, Samples], Prepared] | None = None
    stage: Stage | None = None
    adapt: Adaptation | None = None
    trained: Callable[[Variables], Variables] | None = None
    updates: Part = WHOLE
    averaged: bool = False
    others: bool = False
    keep_optimizer: bool = False
    pooled: bool = False
    order: Order | None = None
