"""The arguments and results of a method's functions."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import optax
from jax.sharding import Mesh

from fdgjax.utils.random import any_key
from fdgjax.utils.variables import PyTree, Variables


class Batch(NamedTuple):
    """A minibatch of one client.

    inputs: float32 `[batch, ...]`: images `[batch, height, width, channels]` in [-1, 1], rows of a table, series, or
      the features that a frozen trunk computed.
    labels: int32 `[batch]`, or standardised numbers, float32 (`config.task=regression`).
    mask: float32 `[batch]`, 1 for a sample, 0 for the padding of a last partial batch.
    label_weight: float32 `[batch]`, the label's weight in the loss: 1 for a true label, in (0, 1] for a pseudo-label.
    extra_batch: equally many further samples of the client, drawn with replacement from all its samples, if the method
      requests them (`Method.extra_batch`); else empty.
    domains: int32 `[batch]`, the domain of each sample, for methods that compare domains, on pooled data or at clients.
      No other federated method uses them. Empty in a batch made without domains.
    """

    inputs: jax.Array
    labels: jax.Array
    mask: jax.Array
    label_weight: jax.Array | float = 1.0
    extra_batch: "Batch | tuple[()]" = ()
    domains: jax.Array | tuple[()] = ()


class Output(NamedTuple):
    """A model's outputs for a batch.

    logits: `[batch, classes]`.
    features: the last layer's input, `[batch, m]`; empty, `[batch, 0]`, for a model without features.
    extra: a dict of further outputs, `[batch, ...]` each; empty for most models.
    """

    logits: jax.Array
    features: jax.Array
    extra: PyTree = ()


class Model(NamedTuple):
    """A client model as two pure functions.

    init: `(key) -> variables`.
    apply: `(variables, inputs, train, key) -> (output, changed collections)`; the latter are empty if no collection is
      mutable, and `key` is for dropout (unused when `train` is false).
    """

    init: Callable[[jax.Array], Variables]
    apply: Callable[[Variables, jax.Array, bool, jax.Array], tuple[Output, Variables]]

    def shapes(self) -> Variables:
        """The shapes and types of the variables; nothing is computed."""
        variables: Variables = jax.eval_shape(self.init, any_key())
        return variables

    def evaluate(self, variables: Variables, inputs: jax.Array) -> Output:
        """The outputs in evaluation: nothing is dropped, and BatchNorm layers normalise by the statistics they keep."""
        output, _ = self.apply(variables, inputs, False, jax.random.key(0))  # nothing is drawn from the key
        return output


class Execution(NamedTuple):
    """How a function of one client is executed for stacked clients; all choices give the same results, up to rounding.

    axis: `"vmap"` (all at once), `"map"` (one at a time inside the same program), `"chunk"` (`chunk` at a time) or
      `"auto"` (`map` on a CPU, `vmap` elsewhere). With several devices, each executes its share of clients in this way.
    chunk: clients at a time for `"chunk"`.
    devices: number of devices that the clients are split over.
    slots: the most clients of a device if a round's clients are assigned to devices by their numbers of steps; 0 for
      an equal number for each device, in the clients' order.
    seed_axis: how several seeds, each with all its clients, are executed: `"map"`, `"vmap"` or `"auto"`.
    unroll: minibatches per iteration of the training loop, if clients run together (not `"map"`).
    mesh: a mesh of `devices` devices given by the caller; clients are split over all its axes. None for JAX's first
      devices.
    """

    axis: str = "auto"
    chunk: int = 8
    devices: int = 1
    seed_axis: str = "auto"
    unroll: int = 1
    mesh: Mesh | None = None
    slots: int = 0


class Setup(NamedTuple):
    """What a method is built for: facts that do not depend on the data, so that one method serves every seed's split.

    model: the client model.
    clients: number of training clients.
    rounds: communication rounds the experiment will run.
    execution: how clients are executed, for a method that maps over clients outside local training.
    domains: number of domains of the data set, the unseen one included; 0 if unknown.
    """

    model: Model
    clients: int
    rounds: int
    execution: Execution = Execution()
    domains: int = 0


class PseudoLabels(NamedTuple):
    """Pseudo-labels: labels that a model assigns to samples; each field is `[samples]`.

    labels: int32. confidence: the model's probability of the label, in [0, 1], for the records. label_weight: the
    label's weight in the loss; samples with weight 0 are left out of the epochs.
    """

    labels: jax.Array
    confidence: jax.Array
    label_weight: jax.Array


class Each(Protocol):
    """Applies a function to all samples of a client, minibatch by minibatch."""

    def __call__(self, function: Callable[[Batch], PyTree], pseudo_labels: PseudoLabels | None = None) -> PyTree:
        """The results of `function` for each minibatch, `[batch, ...]`, joined for all samples, `[longest, ...]`. If
        `pseudo_labels` is given, its labels replace those of the data."""
        ...


class Samples(NamedTuple):
    """A client's samples, in the order of the federation's row, padded at the end.

    mask: float32 `[longest]`, 1 for a sample, 0 for padding. each: applies a function to them.
    """

    mask: jax.Array
    each: Each


class Fit(Protocol):
    """Trains a model on the samples of a domain whose labels are hidden."""

    def __call__(
        self,
        variables: Variables,
        objective: Any,
        optimizer: optax.GradientTransformation,
        epochs: int,
        pseudo_labels: PseudoLabels | None = None,
    ) -> Variables:
        """The variables after `epochs` passes over the samples.

        Args:
          variables: where to start; the objective's `context.received`.
          objective: an `Objective`; the labels it sees are all zero, or the pseudo-labels.
          optimizer: the optimiser, over `params`.
          epochs: passes over the samples; 0 returns `variables`.
          pseudo_labels: `[longest]`; samples with weight 0 are left out.
        """
        ...


class Unlabelled(NamedTuple):
    """The samples to which a model is adapted without labels, see `AdaptFn`; every label is zero.

    samples: computes on them. fit: trains on them.
    """

    samples: Samples
    fit: Fit


class Scope(NamedTuple):
    """To which samples of an unseen domain a model is adapted before it predicts them.

    batched: whether to each batch, instead of to all samples of the domain at once. carried: whether each batch's
    adaptation begins where that of the batch before ended, instead of at the trained model.
    """

    batched: bool = False
    carried: bool = False


WHOLE_DOMAIN = Scope()


class Prepared(NamedTuple):
    """What a client computes before it trains.

    pseudo_labels: the labels to train on, `[longest]` in the order of the client's samples; None for the data's labels.
    aux: further results, passed to the objective and `finish` in the context.
    """

    pseudo_labels: PseudoLabels | None = None
    aux: PyTree = ()


class Context(NamedTuple):
    """What a client knows while it trains: what the server sent, its own row, the variables it started from, the round,
    and the `aux` of `prepare`.

    When a model is adapted to an unseen domain, `sent` and `client` are empty. In training at the server, `client` is
    empty and `sent` is the server's own state.
    """

    sent: PyTree
    client: PyTree
    received: Variables
    round: jax.Array
    aux: PyTree = ()


class Trained(NamedTuple):
    """One client after its local epochs: variables, optimiser state, the mean loss over the samples it saw (NaN if it
    saw none), and the number of optimiser steps (int32)."""

    variables: Variables
    optimizer: PyTree
    loss: jax.Array
    steps: jax.Array


class ServerStep(NamedTuple):
    """The round of a server update, `round` (int32, from 0), and its random key."""

    round: jax.Array
    key: jax.Array
