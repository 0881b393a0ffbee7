"""The contract: a federated method is a value of pure functions, and the engine does everything else.

A method says only what differs from federated averaging. Its state lives in two pytrees, `server` and `clients`
(stacked, client axis first); whatever a run needs to go on exactly is in them and nowhere else. Functions named
for one client see one row of `clients`; the engine adds the client axis.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import optax

from fdgjax.data.federation import Federation
from fdgjax.variables import PyTree, Variables

ObjectiveResult = tuple[jax.Array, tuple[Variables, dict[str, jax.Array]]]
"""What an objective returns, `(loss, (changed collections, info))`, in the form that `jax.value_and_grad` with
`has_aux=True` expects; `info` is diagnostics."""


class Batch(NamedTuple):
    """A minibatch of one client.

    images: float32 `[batch, height, width, channels]` in [-1, 1].
    labels: int32 `[batch]`.
    mask: float32 `[batch]`, 1 for a sample, 0 for the padding of a last partial batch.
    trust: float32 `[batch]`, how much a label counts: 1 for a true one, any share for a guessed one.
    """

    images: jax.Array
    labels: jax.Array
    mask: jax.Array
    trust: jax.Array | float = 1.0


class Output(NamedTuple):
    """What a model says of a batch.

    logits: `[batch, classes]`.
    features: the last layer's input, `[batch, m]`; empty, `[batch, 0]`, of a model that does not tell.
    more: a dict of whatever else it tells, `[batch, ...]` each; empty of most models.
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


class Guess(NamedTuple):
    """Labels given to samples by a model, pseudo-labels; `[samples]` each.

    labels: int32. confidence: the model's probability of the label, in [0, 1], for the records. trust: how much the
    label counts in training, 0 to leave the sample out.
    """

    labels: jax.Array
    confidence: jax.Array
    trust: jax.Array


class Each(Protocol):
    """Goes through all samples of a client, minibatch by minibatch."""

    def __call__(self, function: Callable[[Batch], PyTree], guess: Guess | None = None) -> PyTree:
        """`function` of each minibatch, `[batch, ...]`, as one array for all samples, `[longest, ...]`; labelled by
        `guess` where there is one."""
        ...


class Samples(NamedTuple):
    """A client's samples, in the order of its row, padded at the end.

    mask: float32 `[longest]`, 1 for a sample, 0 for padding. each: goes through them.
    """

    mask: jax.Array
    each: Each


class Prepared(NamedTuple):
    """What a client has worked out before it trains.

    guess: the labels to train on, `[longest]` in the order of its samples; None for those of the data.
    notes: whatever else it found; the objective and `finish` find it in the context.
    """

    guess: Guess | None = None
    notes: PyTree = ()


class Context(NamedTuple):
    """What a client knows while it trains: what the server sent, its own row, what it started from, the round, and what
    it noted before.

    Where a model is adapted to an unseen domain there is neither server nor row; they are empty. At the server there is
    no row, and `sent` is the server's own state.
    """

    sent: PyTree
    client: PyTree
    received: Variables
    round: jax.Array
    notes: PyTree = ()


class Trained(NamedTuple):
    """One client after its local epochs: variables, optimiser state, the mean loss over the samples it saw, and how
    many steps it took (int32)."""

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

    Returns `(loss, (changed collections, info))`; the gradient is taken by `variables["params"]`.
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
    """How a model is fitted to an unseen domain without its labels, before it is tested there.

    objective: what is minimised over the domain's samples. Their labels are hidden: all zero.
    optimizer: how; over `params`.
    epochs: passes over the samples.
    finish: `(before, after) -> variables`, what is kept of it.
    """

    objective: Objective
    optimizer: optax.GradientTransformation
    epochs: int
    finish: Callable[[Variables, Variables], Variables]


Order = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""How an epoch goes through samples: `(key, labels [longest], count) -> positions [longest]`, of which the first
`count` are taken."""


class Stage(NamedTuple):
    """Training at the server, on labelled samples of its own (`Federation.server`), once a round.

    begin: the variables it trains, of the server's state.
    objective, optimizer: the loss and how it is minimised, as a client's; the optimiser begins anew each round.
    finish: the server's state with what was trained.
    order: how an epoch goes through the samples; None shuffles them.
    last: whether it ends a round, after the aggregation, or else begins it.
    """

    begin: Callable[[PyTree], Variables]
    objective: Objective
    optimizer: optax.GradientTransformation
    finish: Callable[[PyTree, Trained], PyTree]
    order: Order | None = None
    last: bool = False


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

    A client's row is all that is kept for it, by itself or by the server in its name. What travels is `sent_i` and
    `message_i`, nothing else: a client learns of the server only what was sent, and their sizes are the traffic that is
    reported.

    init: `(key, federation) -> (server, clients)`, a row of `clients` for each of `federation.ids`.
    send: what the server sends to a client.
    start: what a client starts from, made of what it was sent and of what it kept.
    objective: the local loss.
    optimizer: the local optimiser, over `params`; it may take the extra arguments `round` and `context`.
    finish: what a client sends (`message`) and what it keeps (its new row).
    aggregate: messages `[clients, ...]` to one aggregate, with the coefficients used as diagnostics.
    update: what the server does with the aggregate.
    predict: the variables that predict for client i.
    unseen: the variables that predict for an unseen domain, stacked `[models, ...]`; accuracies are averaged over
      the models.
    label: the fate of each variable that `start` returns, by its path (`"params/head/kernel"`): `"shared"` (one value
      for all), `"personal"` (sent to the server, each client receives its own) or `"local"` (never leaves the client).
    weights: aggregation weights from the clients' numbers of training samples, `[clients] -> [clients]`.
    prepare: what a client works out before it trains, such as labels for samples that have none; None for nothing.
    stage: training at the server, before or after all this; None where the server has no data.
    adapt: how the models for an unseen domain are adapted to it; None where they are not.
    trained: of the variables a client has just trained, those that predict for it; None where clients have no model of
      their own, but all the same.
    keep_optimizer: whether a client's optimiser state outlives the round.
    pooled: whether all training data are gathered at one client (the non-federated reference).
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
    keep_optimizer: bool = False
    pooled: bool = False
