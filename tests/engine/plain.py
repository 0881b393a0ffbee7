"""The engine's specification: a round as plain Python loops, without padding, masks, scans or a client axis."""

import copy
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fdgjax.contract import (
    Batch,
    Context,
    Method,
    Prepared,
    PseudoLabels,
    PyTree,
    Samples,
    ServerStep,
    ServerTraining,
    Trained,
    Variables,
)
from fdgjax.data.federation import Federation, on_device
from fdgjax.engine import State
from fdgjax.engine.local import Batching
from fdgjax.utils.random import Purpose, stream
from tests.toys import by_numpy, row


def shuffled(key: jax.Array, rows: np.ndarray) -> np.ndarray:
    """Rows in the order of one random number per position."""
    draws = [int(jax.random.bits(jax.random.fold_in(key, position))) for position in range(len(rows))]
    return rows[np.argsort(draws, kind="stable")]


def one_step(trainer: Method | ServerTraining) -> Any:
    """A jitted step of minibatch training."""
    transform = optax.with_extra_args_support(trainer.optimizer)

    def loss(params: Any, variables: Variables, batch: Batch, key: jax.Array, context: Context) -> Any:
        return trainer.objective({**variables, "params": params}, batch, key, context)

    def step(
        variables: Variables, optimizer: PyTree, done: jax.Array, *rest: Any
    ) -> tuple[Variables, PyTree, jax.Array]:
        params, context = variables["params"], rest[-1]
        (value, changed), grads = jax.value_and_grad(loss, has_aux=True)(params, variables, *rest)
        updates, optimizer = transform.update(grads, optimizer, params, round=context.round, done=done, context=context)
        return {**variables, **changed, "params": optax.apply_updates(params, updates)}, optimizer, value

    return jax.jit(step)


def make_batch(federation: Federation, rows: np.ndarray, mask: np.ndarray) -> Batch:
    """The samples at `rows` with their own labels."""
    pixels = np.asarray(federation.inputs)[rows].astype(np.float32) / np.float32(127.5) - np.float32(1)
    labels, domains = (np.asarray(table)[rows] for table in (federation.labels, federation.domains))
    return jax.device_put(Batch(pixels, labels, on_device(mask, np.float32), domains=domains))


class PlainRound:
    """A round of one method; keeps its jitted functions."""

    def __init__(self, method: Method, batching: Batching) -> None:
        self.method, self.batching = method, batching

        def serve(
            server: PyTree, clients: PyTree, messages: PyTree, weights: jax.Array, server_step: ServerStep
        ) -> PyTree:
            aggregate, _ = method.aggregate(server, clients, messages, weights)
            return method.update(server, clients, aggregate, server_step)

        def prepare(context: Context, batch: Batch) -> Prepared:
            def each(function: Any, pseudo_labels: PseudoLabels | None = None) -> PyTree:
                return function(
                    batch
                    if pseudo_labels is None
                    else batch._replace(labels=pseudo_labels.labels, label_weight=pseudo_labels.label_weight)
                )

            assert method.prepare is not None
            return method.prepare(context, Samples(batch.mask, each))

        self.prepared = jax.jit(prepare)
        self.send, self.start, self.finish = jax.jit(method.send), jax.jit(method.start), jax.jit(method.finish)
        self.serve, self.fresh = jax.jit(serve), jax.jit(method.optimizer.init)
        self.step = one_step(method)
        self.stage_step = one_step(method.server_training) if method.server_training else self.step

    def with_batching(self, batching: Batching) -> Self:
        """The same round, compiled as it is, with other batches."""
        other = copy.copy(self)
        other.batching = batching
        return other

    def batches(self, rows: np.ndarray, fill: bool) -> list[tuple[np.ndarray, np.ndarray]]:
        """Consecutive minibatches with their masks; a last partial one is kept as it is, left out, or filled up with
        the client's samples from the first one on, which only batch statistics see."""
        size = self.batching.batch_size
        parts = [rows[i : i + size] for i in range(0, len(rows), size)]
        parts = [part for part in parts if len(part) == size or not self.batching.drop_last]
        masks = [np.arange(size if fill else len(part)) < len(part) for part in parts]
        return [(np.concatenate([p, np.resize(rows, len(m) - len(p))]), m) for p, m in zip(parts, masks, strict=True)]

    def train(
        self,
        federation: Federation,
        context: Context,
        optimizer: PyTree,
        rows: np.ndarray,
        key: jax.Array,
        pseudo_labels: PseudoLabels | None = None,
        at_server: bool = False,
    ) -> Trained:
        """One client's local epochs, or the server's."""
        stage = self.method.server_training if at_server else None
        step = self.stage_step if at_server else self.step
        variables, losses, steps = context.received, [], 0
        for epoch, epoch_key in enumerate(jax.random.split(key, self.batching.epochs)):
            done = jnp.float32(int(context.round) + epoch / self.batching.epochs)
            order_key, step_key = jax.random.split(epoch_key)
            order = shuffled(order_key, np.arange(len(rows)))
            if in_order := (stage or self.method).order:
                kinds = federation.labels[rows], federation.domains[rows]
                order = np.asarray(in_order(order_key, *kinds, jnp.int32(len(rows)), self.batching.batch_size))
            if pseudo_labels is not None:
                order = order[np.asarray(pseudo_labels.label_weight)[order] > 0]
            filled = self.batches(order, fill="batch_stats" in variables)
            for i, (part, mask) in enumerate(filled):
                batch = make_batch(federation, rows[part], mask)
                if pseudo_labels is not None:
                    batch = batch._replace(
                        labels=pseudo_labels.labels[part], label_weight=pseudo_labels.label_weight[part]
                    )
                if pseudo_labels is not None and self.method.extra_batch:
                    other_key = jax.random.fold_in(jax.random.fold_in(epoch_key, 2), i)
                    drawn = np.asarray(jax.random.randint(other_key, (len(part),), 0, len(rows)))
                    others = make_batch(federation, rows[drawn], np.ones(len(part)))
                    batch = batch._replace(
                        extra_batch=others._replace(
                            labels=pseudo_labels.labels[drawn], label_weight=pseudo_labels.label_weight[drawn]
                        )
                    )
                step_key_i = jax.random.fold_in(step_key, i)
                variables, optimizer, loss = step(variables, optimizer, done, batch, step_key_i, context)
                losses += [float(loss)] * int(mask.sum())
                steps += 1
        mean_loss = np.float32(np.mean(losses) if losses else np.nan)
        return Trained(variables, optimizer, *jax.device_put((mean_loss, np.int32(steps))))

    def train_server(self, state: State, server: PyTree, federation: Federation, last: bool) -> PyTree:
        """The server's state after its own training, if it is at that end of the round."""
        stage = self.method.server_training
        if stage is None or stage.last is not last:
            return server
        variables = stage.begin(server)
        rows = np.asarray(federation.server.places[0])[: int(federation.server.length[0])]
        trained = self.train(
            federation,
            Context(server, (), variables, state.round),
            stage.optimizer.init(variables["params"]),
            rows,
            stream(state.seed, Purpose.SERVER_TRAINING, state.round),
            at_server=True,
        )
        return stage.finish(server, trained)

    def prepare(
        self, federation: Federation, context: Context, rows: np.ndarray
    ) -> tuple[Context, PseudoLabels | None]:
        """What a client works out, all its samples at once."""
        if self.method.prepare is None:
            return context, None

        prepared = self.prepared(context, make_batch(federation, rows, np.ones(len(rows))))
        return context._replace(aux=prepared.aux), prepared.pseudo_labels

    def __call__(
        self, state: State, federation: Federation, who: list[int], invisible: tuple[int, ...] = ()
    ) -> tuple[State, list[float]]:
        """The state after a round of the clients `who`, and their losses; `invisible` ones train with weight zero."""
        method = self.method
        ids, places, lengths = (np.asarray(x) for x in (federation.ids, *federation.train))
        messages, kept, optimizers, losses = [], [], [], []
        server = self.train_server(state, state.server, federation, last=False)
        for client in who:
            mine = row(state.clients, client)
            sent = self.send(server, mine)
            received = self.start(sent, mine)
            context = Context(sent, mine, received, state.round)
            optimizer = row(state.optimizers, client) if method.keep_optimizer else self.fresh(received["params"])
            key = stream(state.seed, Purpose.TRAINING, state.round, int(ids[client]))
            rows = places[client][: lengths[client]]
            context, pseudo_labels = self.prepare(federation, context, rows)
            trained = self.train(federation, context, optimizer, rows, key, pseudo_labels)
            message, new = self.finish(context, trained)
            messages.append(message)
            kept.append(new)
            optimizers.append(trained.optimizer if method.keep_optimizer else row(state.optimizers, client))
            losses.append(float(trained.loss))
        stack = lambda rows: by_numpy(lambda *leaves: np.stack(leaves), *rows)  # noqa: E731
        weights = np.array(method.weights(jax.device_put(lengths[who])))
        weights[[client in invisible for client in who]] = 0
        server_step = ServerStep(state.round, stream(state.seed, Purpose.SERVER, state.round))
        server, clients = self.serve(server, stack(kept), stack(messages), weights, server_step)
        server = self.train_server(state, server, federation, last=True)
        put = lambda everyone, some: by_numpy(  # noqa: E731
            lambda a, b: np.stack([b[who.index(i)] if i in who else a[i] for i in range(len(ids))]), everyone, some
        )
        after = State(
            state.seed, state.round + 1, server, put(state.clients, clients), put(state.optimizers, stack(optimizers))
        )
        return after, losses
