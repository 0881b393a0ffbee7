"""A federated method, as a value of pure functions."""

from collections.abc import Callable
from typing import NamedTuple

import optax

from fdgjax.contract.functions import (
    AdaptFn,
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


class ServerTraining(NamedTuple):
    """Training at the server, on the server's own labelled samples (`Federation.server`), once per round.

    begin: `server -> variables`, the variables to train.
    objective, optimizer: the loss and the optimiser, as for a client; the optimiser's state is reset each round.
    finish: `(server, trained) -> server`, the server's state after this training.
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
    """Access to a part of a value: `get` returns the part, `set` returns the whole with that part replaced."""

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

    A client's row holds all state kept for that client, by itself or by the server on its behalf. Only `sent_i` and
    `message_i` travel between server and client; their sizes are the reported traffic.

    init: `(key, federation) -> (server, clients)`; `clients` has one row for each of `federation.ids`.
    send: what the server sends to a client.
    start: the variables a client starts from, made from what it was sent and its row.
    objective: the local loss.
    optimizer: the local optimiser, over `params`; it may take the extra arguments `round`, `context` and
      `done`, the number of finished rounds, finished local epochs included (float32).
    finish: what a client sends (`message`) and what it keeps (its new row).
    aggregate: from messages `[clients, ...]` to one aggregate, and the coefficients used, for diagnostics.
    update: the new states of server and clients, given the aggregate.
    predict: the variables that predict for client i.
    unseen: the variables that predict for an unseen domain, stacked `[models, ...]`; accuracies are averaged over
      the models.
    label: how each variable that `start` returns is shared, by its path (`"params/linear_2/kernel"`): `"shared"` (one
      value for all), `"personal"` (sent to the server, each client receives its own) or `"local"` (never leaves the
      client). `fdgjax.models.depth.layers` has a model's layers in order.
    weights: from the clients' numbers of training samples to aggregation weights, `[clients] -> [clients]`.
    prepare: what a client computes before it trains, such as pseudo-labels; None for nothing.
    server_training: training at the server, before or after the steps above; None if the server has no data.
    adapt: how a model for unseen domains is adapted to one of them, without labels, before it is tested there; None if
      it is not. `config.adaptation` can replace it.
    trained: from the variables a client just trained to those that predict for it; None if all clients share one model.
    updates: the part of a message that is the client's update, the change of the variables it received (zero for an
      unchanged variable); the rest of a message is statistics and the client's own variables.
    averaged: whether `aggregate` makes one combination of these updates for all clients, which equals the updates if
      they are all equal, so that a robust rule can replace the combination.
    extra_batch: whether each minibatch of a client comes with a second one of equal size, drawn from all its samples.
    keep_optimizer: whether a client's optimiser state is kept from round to round.
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
    adapt: AdaptFn | None = None
    trained: TrainedFn | None = None
    updates: Lens = WHOLE
    averaged: bool = False
    extra_batch: bool = False
    keep_optimizer: bool = False
    pooled: bool = False
    order: Order | None = None
