"""Counts of correct predictions and of confidences, over models and samples, on the device."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped

from fdgjax.contract import WHOLE_DOMAIN, Batch, Execution, Method, Model, Output, PyTree, Scope, Variables
from fdgjax.data.federation import Federation, Rows, stack_rows
from fdgjax.engine.batched_hyper import BatchedHyper, over_methods
from fdgjax.engine.clients import jit, over_clients, repeat_of
from fdgjax.engine.local import LocalData, samples_of, slice_rows, take_batch
from fdgjax.engine.loops import Repeat
from fdgjax.engine.round import State
from fdgjax.evaluation.adaptation import adapt, count_adapted
from fdgjax.utils.random import Purpose, stream

BINS = 15
Shown = Callable[[Batch], Batch]
"""Changes a batch before the model sees it: the images, and the labels and mask by which it is counted."""


class Tally(NamedTuple):
    """Counts over samples; sums of tallies are tallies.

    correct, total: `[..., domains]`.
    bin_count, bin_correct, bin_confidence: by confidence, `[..., bins]` of equal width in [0, 1].
    loss: summed cross-entropy, `[...]`.
    """

    correct: jax.Array
    total: jax.Array
    bin_count: jax.Array
    bin_correct: jax.Array
    bin_confidence: jax.Array
    loss: jax.Array


class Tallies(NamedTuple):
    """`source`, `test`: each client's model on its own validation and test data, `[clients, ...]`; `target`: each model
    for the unseen domain on all of its test samples, `[models, ...]`; `adapted`: the same after each was adapted to it,
    None where the method does not adapt; `attacked`: as `target`, of batches with the images and labels of an attack
    on predictions, None without one; `further`: what else was asked for, None for nothing."""

    source: Tally
    test: Tally
    target: Tally
    adapted: Tally | None
    attacked: Tally | None = None
    further: PyTree = None


def tally(
    model: Model,
    variables: Variables,
    federation: Federation,
    rows: Rows,
    *,
    domains: int,
    batch_size: int,
    repeat: Repeat,
    shown: Shown | None = None,
) -> Tally:
    """Counts of one model over one row of samples, batch by batch, each as `shown` changes it."""
    batch_size = filled(batch_size, rows)

    def add(i: jax.Array, sums: Tally) -> Tally:
        places, mask = slice_rows(rows.places, rows.length, i * batch_size, batch_size)
        batch, where = take_batch(federation, places, mask), federation.domains[places]
        batch = shown(batch) if shown else batch
        logits = model.evaluate(variables, batch.inputs).logits
        log_p = jax.nn.log_softmax(logits)
        confidence = jnp.exp(jnp.max(log_p, axis=1))
        # The first of NaN logits is the largest to argmax.
        known = ~jnp.any(jnp.isnan(logits), axis=1)
        right = (known & (jnp.argmax(logits, axis=1) == batch.labels)).astype(jnp.float32) * batch.mask
        bins = jnp.minimum((confidence * BINS).astype(jnp.int32), BINS - 1)
        nll = -jnp.take_along_axis(log_p, batch.labels[:, None], axis=1)[:, 0]
        return Tally(
            sums.correct + by_group(right, where, domains),
            sums.total + by_group(batch.mask, where, domains),
            sums.bin_count + by_group(batch.mask, bins, BINS),
            sums.bin_correct + by_group(right, bins, BINS),
            sums.bin_confidence + by_group(confidence * batch.mask, bins, BINS),
            sums.loss + jnp.sum(nll * batch.mask),
        )

    by_domain, by_bin = jnp.zeros(domains, jnp.float32), jnp.zeros(BINS, jnp.float32)
    empty = Tally(by_domain, by_domain, by_bin, by_bin, by_bin, jnp.zeros((), jnp.float32))
    return repeat(-(-rows.length // batch_size), -(-len(rows.places) // batch_size), add, empty)


def by_group(values: jax.Array, groups: jax.Array, number: int) -> jax.Array:
    """The sum of the values `[samples]` of each of `number` groups, in one order: a GPU's scatter adds up in any."""
    return jnp.sum(jnp.where(jax.nn.one_hot(groups, number, dtype=bool), values[:, None], 0), axis=0)


def filled(batch_size: int, rows: Rows) -> int:
    """The batch size, at most the longest row: many clients with a few held-out samples each do not fill larger batches
    with others."""
    return min(batch_size, max(len(rows.places), 1))


class EvaluationSettings(NamedTuple):
    """How predictions are counted.

    batch_size, adapt_batch_size: samples at a time, in evaluation and in the adaptation to an unseen domain.
    execution: how clients and seeds are run.
    adapt_scope: to which samples of the unseen domain a model is adapted at a time.
    """

    batch_size: int
    adapt_batch_size: int
    execution: Execution
    adapt_scope: Scope = WHOLE_DOMAIN


def compile_evaluation(
    method: Method | BatchedHyper,
    model: Model,
    how: EvaluationSettings,
    *,
    domains: int,
    attacked: Shown | None = None,
    further: Callable[[Method, State, Federation], PyTree] | None = None,
    counting: Callable[..., Any] = tally,
) -> Wrapped:
    """`(state, federation) -> Tallies`, jitted; of all seeds where these have a seed axis. Arguments as for
    `fdgjax.evaluation.evaluating.of_predictions`; `further` computes what else is observed;
    `counting` sums over a model's samples, as `tally` does."""
    execution, repeat = how.execution, repeat_of(how.execution)
    count = partial(counting, model, domains=domains, batch_size=how.batch_size, repeat=repeat)

    def on_target(
        method: Method, shared: tuple[State, Federation], variables: Variables
    ) -> tuple[Tally, Tally | None, Tally | None]:
        state, federation = shared
        rows = jax.tree.map(lambda leaf: leaf[0], federation.target)
        before = count(variables, federation, rows)
        behind = count(variables, federation, rows, shown=attacked) if attacked else None
        if method.adapt is None:
            return before, None, behind

        key = stream(state.seed, Purpose.ADAPTATION, state.round)
        steps: dict[str, Any] = {"batch_size": how.adapt_batch_size, "repeat": repeat}
        fitted = partial(adapt, method.adapt, federation=federation, round_=state.round, key=key, **steps)
        after = count_adapted(fitted, partial(count, federation=federation), variables, rows, how.adapt_scope, **steps)
        return before, after, behind

    def evaluate(method: Method, state: State, federation: Federation) -> Tallies:
        source, test = on_held_out(count, method, state, federation, execution)
        models = method.unseen(state.server, state.clients)
        found = Tallies(source, test, *over_clients(partial(on_target, method), execution)((state, federation), models))
        return found._replace(further=further(method, state, federation) if further else None)

    return jit(over_methods(evaluate, method, execution.seed_axis), execution)


def on_held_out(
    count: Callable[[Variables, Federation, Rows], PyTree],
    method: Method,
    state: State,
    federation: Federation,
    execution: Execution,
) -> tuple[PyTree, PyTree]:
    """What `count` finds in each client's validation and in its test samples, `[clients, ...]`, with its own model; to
    be part of a jitted program."""

    def of_client(shared: tuple[PyTree, Federation], client: PyTree, tables: Rows) -> PyTree:
        # A loop over the tables, so that the program holds the model once.
        server, federation = shared
        variables = method.predict(server, client)
        return jax.lax.map(lambda rows: count(variables, federation, rows), tables)

    clients, tables = state.clients, stack_rows([federation.validation, federation.test])
    held_out = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), tables)
    if method.pooled:
        clients = jax.tree.map(lambda leaf: jnp.repeat(leaf, len(held_out.length), axis=0), clients)
    own = over_clients(of_client, execution)((state.server, federation), clients, held_out)
    validation, test = (jax.tree.map(lambda leaf, table=table: leaf[:, table], own) for table in range(2))
    return validation, test


def compile_representation(
    method: Method | BatchedHyper,
    model: Model,
    represent: Callable[[Output], jax.Array],
    *,
    batch_size: int,
    execution: Execution,
) -> Wrapped:
    """`(state, federation) -> [models, longest, m]`, the representations of the unseen domain's samples by each model
    for that domain; jitted, of all seeds where these have a seed axis."""
    repeat = repeat_of(execution)

    def of_model(federation: Federation, variables: Variables) -> jax.Array:
        rows, count = federation.target.places[0], federation.target.length[0]
        samples = samples_of(LocalData(federation, rows, count), batch_size, repeat)
        found: jax.Array = samples.each(lambda batch: represent(model.evaluate(variables, batch.inputs)))
        return found

    def evaluate(method: Method, state: State, federation: Federation) -> jax.Array:
        models = method.unseen(state.server, state.clients)
        found: jax.Array = over_clients(of_model, execution)(federation, models)
        return found

    return jit(over_methods(evaluate, method, execution.seed_axis), execution)


def calibration_bins(counts: Tally) -> dict[str, list[float]]:
    """Samples by the confidence of their prediction, summed over all models, a value for each of 15 bins of equal width
    in [0, 1]: their number (`count`), the number of correct ones (`correct`), and the sum of their confidences
    (`confidence`)."""
    return {
        name: np.asarray(getattr(counts, f"bin_{name}"), np.float64).reshape(-1, BINS).sum(axis=0).tolist()
        for name in ("count", "correct", "confidence")
    }


def expected_calibration_error(counts: Tally) -> float:
    """`sum_b |correct_b - confidence_b| / n` over all models and 15 equal-width bins (Guo et al., 2017, equation 3);
    0 where there are no samples."""
    bins = {name: np.asarray(values) for name, values in calibration_bins(counts).items()}
    return float(np.abs(bins["correct"] - bins["confidence"]).sum() / max(bins["count"].sum(), 1))
