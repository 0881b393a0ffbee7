"""A federated method, as a value of pure functions."""

from collections.abc import Callable
from typing import NamedTuple

import optax

from fdgjax.contract.functions import (
    AggregateFn,
    FinishFn,
    InitFn,
    LabelFn,
    Objective,
    Order,
    PredictFn,
    PrepareFn,
    SendFn,
    StartFn,
    TrainedFn,
    UnseenFn,
    UpdateFn,
    WeightsFn,
)
from fdgjax.contract.values import Trained
from fdgjax.utils.variables import PyTree, Variables


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


class ServerTraining(NamedTuple):
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


class Lens(NamedTuple):
    """A part of a value: `get` takes it out of the whole, `set` returns the whole with that part replaced."""

    get: Callable[[PyTree], PyTree]
    set: Callable[[PyTree, PyTree], PyTree]


WHOLE = Lens(lambda whole: whole, lambda whole, part: part)


class Method(NamedTuple):
    """A federated method.

    One round, for the clients that take part:

        sent_i                = send(server, client_i)
        received_i            = start(sent_i, client_i)
        labels_i, aux_i       = prepare(context_i, samples_i)
        trained_i             = local epochs of `optimizer` on `objective`, from received_i
        message_i, client_i   = finish(context_i, trained_i)
        aggregate, info       = aggregate(server, clients, messages, weights)
        server, clients       = update(server, clients, aggregate, server_step)

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
    server_training: training at the server, before or after the steps above; None where the server has no data.
    adapt: how the models for an unseen domain are adapted to it; None where they are not.
    trained: from the variables a client just trained, those that predict for it; None where all clients share one
      model.
    updates: the part of a message that says how far the client's training moved the variables it received, zero where
      it did not; the rest of a message is statistics and variables of the client's own.
    averaged: whether `aggregate` makes one combination of these updates for all clients, equal to them where they are
      all equal, so that another combination can take its place.
    extra_batch: whether a client's minibatches bring as many further samples along, drawn from all its samples.
    keep_optimizer: whether a client's optimiser state outlives the round.
    pooled: whether all training data are gathered at one client (the non-federated reference).
    order: the order of an epoch's samples at a client; None shuffles them.
    """

    init: InitFn
    send: SendFn
    start: StartFn
    objective: Objective
    optimizer: optax.GradientTransformation
    finish: FinishFn
    aggregate: AggregateFn
    update: UpdateFn
    predict: PredictFn
    unseen: UnseenFn
    label: LabelFn
    weights: WeightsFn
    prepare: PrepareFn | None = None
    server_training: ServerTraining | None = None
    adapt: Adaptation | None = None
    trained: TrainedFn | None = None
    updates: Lens = WHOLE
    averaged: bool = False
    extra_batch: bool = False
    keep_optimizer: bool = False
    pooled: bool = False
    order: Order | None = None
