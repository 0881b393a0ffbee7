"""The functions that a method is made of.

Their parameters are positional-only, so that a method may choose its own names and types for states and messages.
"""

from typing import Protocol

import jax

from fdgjax.contract.values import Batch, Context, Prepared, Samples, ServerStep, Trained, Unlabelled
from fdgjax.data.federation import Federation
from fdgjax.utils.variables import PyTree, Variables

ObjectiveResult = tuple[jax.Array, Variables]
"""What an objective returns, `(loss, changed collections)`, in the form that `jax.value_and_grad` with `has_aux=True`
expects."""


class Objective(Protocol):
    """A local training objective, averaged over the unmasked samples of the batch."""

    def __call__(self, variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        """Computes the loss of one batch.

        Args:
          variables: the model's variables; the gradient is taken with respect to `variables["params"]`.
          batch: the samples; the mask is 0 for padding.
          key: random key of this step.
          context: what the client knows.

        Returns:
          `(loss, changed collections)`, the latter without `params`.
        """
        ...


class Rule(Protocol):
    """An aggregation rule."""

    def __call__(self, updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        """Combines the clients' updates.

        Args:
          updates: pytree of arrays `[clients, ...]`; zeros for a client that is left out of the round.
          weights: None (uniform), `[clients]`, or a prefix tree of such arrays; 0 for a client that is left out.

        Returns:
          `(update, coefficients)`: the aggregate, without client axis, and the clients' factors in it.
        """
        ...


class Order(Protocol):
    """The order of an epoch's samples."""

    def __call__(
        self, key: jax.Array, labels: jax.Array, domains: jax.Array, count: jax.Array, size: int, /
    ) -> jax.Array:
        """Puts a client's samples into an order.

        Args:
          key: random key of this epoch.
          labels, domains: int32 `[longest]`, padded.
          count: number of samples without padding.
          size: samples of a minibatch, which the order is cut into.

        Returns:
          Positions `[longest]`, of which the first `count` are used.
        """
        ...


class InitFn(Protocol):
    """The states before the first round."""

    def __call__(self, key: jax.Array, federation: Federation, /) -> tuple[PyTree, PyTree]:
        """Makes the states of the server and of the clients.

        Args:
          key: random key of the initialisation.
          federation: the data of one seed.

        Returns:
          `(server, clients)`; `clients`, `[clients, ...]`, has one row for each of `federation.ids`.
        """
        ...


class SendFn(Protocol):
    """What the server sends to a client."""

    def __call__(self, server: PyTree, client: PyTree, /) -> PyTree:
        """Makes what is sent at the beginning of a round.

        Args:
          server: the server's state.
          client: the client's row; the server may read only the parts of it that it keeps on the client's behalf.

        Returns:
          `sent`; its size is the reported downlink traffic.
        """
        ...


class StartFn(Protocol):
    """The variables a client starts from."""

    def __call__(self, sent: PyTree, client: PyTree, /) -> Variables:
        """Combines what the client received with what it keeps.

        Args:
          sent: what `send` made for this client.
          client: the client's row.

        Returns:
          All variables of the client model.
        """
        ...


class PrepareFn(Protocol):
    """What a client computes before it trains."""

    def __call__(self, context: Context, samples: Samples, /) -> Prepared:
        """Computes pseudo-labels, or other results for the objective and `finish`.

        Args:
          context: what the client knows; its `aux` is empty.
          samples: the client's training samples.

        Returns:
          The labels to train on, and the `aux` of the context.
        """
        ...


class FinishFn(Protocol):
    """What a client sends and what it keeps."""

    def __call__(self, context: Context, trained: Trained, /) -> tuple[PyTree, PyTree]:
        """Makes the client's message and its new row after local training.

        Args:
          context: what the client knows; `context.client` is its old row.
          trained: variables, optimiser state, loss and number of steps.

        Returns:
          `(message, client)`: the message to the server, whose size is the reported uplink traffic, and the new row.
        """
        ...


class AggregateFn(Protocol):
    """Aggregates messages."""

    def __call__(
        self, server: PyTree, clients: PyTree, messages: PyTree, weights: jax.Array, /
    ) -> tuple[PyTree, PyTree]:
        """Combines the messages of a round.

        Args:
          server: the server's state.
          clients: the participants' new rows, `[participants, ...]`.
          messages: what they sent, `[participants, ...]`.
          weights: aggregation weights, `[participants]`; 0 for a client that is left out of the round.

        Returns:
          `(aggregate, coefficients)`; the latter are diagnostics, a pytree of arrays `[participants, ...]`.
        """
        ...


class UpdateFn(Protocol):
    """The server update."""

    def __call__(
        self, server: PyTree, clients: PyTree, aggregate: PyTree, server_step: ServerStep, /
    ) -> tuple[PyTree, PyTree]:
        """Computes the new states from the aggregate.

        Args:
          server: the server's state.
          clients: the participants' rows, `[participants, ...]`.
          aggregate: what `aggregate` returned.
          server_step: the round and a random key.

        Returns:
          The new `(server, clients)`, with unchanged shapes.
        """
        ...


class PredictFn(Protocol):
    """The variables that predict for a client."""

    def __call__(self, server: PyTree, client: PyTree, /) -> Variables:
        """Makes the client's model.

        Args:
          server: the server's state.
          client: the client's row.

        Returns:
          All variables of the client model.
        """
        ...


class UnseenFn(Protocol):
    """The variables that predict for an unseen domain."""

    def __call__(self, server: PyTree, clients: PyTree, /) -> Variables:
        """Makes the models for a domain that no client holds.

        Args:
          server: the server's state.
          clients: the rows of all clients, `[clients, ...]`.

        Returns:
          All variables of one or more models, stacked `[models, ...]`, and, if the method adapts, collections for
          `adapt` that the network does not read.
        """
        ...


class AdaptFn(Protocol):
    """How a model is adapted to an unseen domain without its labels."""

    def __call__(self, variables: Variables, domain: Unlabelled, /) -> Variables:
        """Adapts a model.

        Args:
          variables: one of the models for an unseen domain.
          domain: samples of that domain.

        Returns:
          The variables that predict for these samples.
        """
        ...


class LabelFn(Protocol):
    """How each variable is shared."""

    def __call__(self, path: str, /) -> str:
        """Labels a variable.

        Args:
          path: such as `"params/linear_2/kernel"`, by the names of the network's layers.

        Returns:
          `"shared"`, `"personal"` or `"local"`, an entry of `fdgjax.utils.variables.LABELS`.
        """
        ...


class WeightsFn(Protocol):
    """Aggregation weights."""

    def __call__(self, counts: jax.Array, /) -> jax.Array:
        """Weights clients by their numbers of training samples.

        Args:
          counts: int32 `[participants]`.

        Returns:
          float32 `[participants]`, non-negative; they need not sum to one.
        """
        ...


class TrainedFn(Protocol):
    """The variables that predict for the client that has just trained."""

    def __call__(self, variables: Variables, /) -> Variables:
        """Makes the client's model without the server.

        Args:
          variables: the variables as the client trained them.

        Returns:
          All variables of the client model.
        """
        ...
