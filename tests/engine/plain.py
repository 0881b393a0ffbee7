"""The engine's specification: a round as plain Python loops, without padding, masks, scans or a client axis."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fdgjax.contract import Batch, Context, Method, Moment, PyTree, Trained, Variables
from fdgjax.engine import State
from fdgjax.engine.local import Batching
from fdgjax.federation import Federation
from fdgjax.randomness import Purpose, stream
from tests.toys import row


def shuffled(key: jax.Array, rows: np.ndarray) -> np.ndarray:
    """Rows in the order of one random number per position."""
    draws = [int(jax.random.bits(jax.random.fold_in(key, position))) for position in range(len(rows))]
    return rows[np.argsort(draws, kind="stable")]


class PlainRound:
    """A round of one method; keeps the jitted gradient, which is all that is compiled."""

    def __init__(self, method: Method, batching: Batching) -> None:
        self.method, self.batching = method, batching
        transform = optax.with_extra_args_support(method.optimizer)

        def loss(params: Any, variables: Variables, batch: Batch, key: jax.Array, context: Context) -> Any:
            return method.objective({**variables, "params": params}, batch, key, context)

        def step(variables: Variables, optimizer: PyTree, *rest: Any) -> tuple[Variables, PyTree, jax.Array]:
            params = variables["params"]
            (value, (changed, _)), grads = jax.value_and_grad(loss, has_aux=True)(params, variables, *rest)
            updates, optimizer = transform.update(grads, optimizer, params, round=rest[-1].round)
            return {**variables, **changed, "params": optax.apply_updates(params, updates)}, optimizer, value

        def serve(server: PyTree, clients: PyTree, messages: PyTree, weights: jax.Array, moment: Moment) -> PyTree:
            aggregate, _ = method.aggregate(server, clients, messages, weights)
            return method.update(server, clients, aggregate, moment)

        self.send, self.start = jax.jit(method.send), jax.jit(method.start)
        self.step, self.serve = jax.jit(step), jax.jit(serve)

    def batches(self, rows: np.ndarray, fill: bool) -> list[tuple[np.ndarray, np.ndarray]]:
        """Consecutive minibatches with their masks; a last partial one is kept as it is, left out, or filled up with
        the client's samples from the first one on, which only batch statistics see."""
        size = self.batching.batch_size
        parts = [rows[i : i + size] for i in range(0, len(rows), size)]
        parts = [part for part in parts if len(part) == size or not self.batching.drop_last]
        masks = [np.arange(size if fill else len(part)) < len(part) for part in parts]
        return [(np.concatenate([p, np.resize(rows, len(m) - len(p))]), m) for p, m in zip(parts, masks, strict=True)]

    def train(
        self, federation: Federation, context: Context, optimizer: PyTree, rows: np.ndarray, key: jax.Array
    ) -> Trained:
        """One client's local epochs."""
        images, labels = np.asarray(federation.images), np.asarray(federation.labels)
        variables, losses, steps = context.received, [], 0
        for epoch_key in jax.random.split(key, self.batching.epochs):
            order_key, step_key = jax.random.split(epoch_key)
            filled = self.batches(shuffled(order_key, rows), fill="batch_stats" in variables)
            for i, (part, mask) in enumerate(filled):
                pixels = images[part].astype(np.float32) / np.float32(127.5) - np.float32(1)
                batch = Batch(jnp.asarray(pixels), jnp.asarray(labels[part]), jnp.asarray(mask, jnp.float32))
                step_key_i = jax.random.fold_in(step_key, i)
                variables, optimizer, loss = self.step(variables, optimizer, batch, step_key_i, context)
                losses += [float(loss)] * int(mask.sum())
                steps += 1
        mean_loss = jnp.float32(np.mean(losses) if losses else 0.0)
        return Trained(variables, optimizer, mean_loss, jnp.int32(steps))

    def __call__(
        self, state: State, federation: Federation, who: list[int], invisible: tuple[int, ...] = ()
    ) -> tuple[State, list[float]]:
        """The state after a round of the clients `who`, and their losses; `invisible` ones train with weight zero."""
        method = self.method
        ids, places, lengths = (np.asarray(x) for x in (federation.ids, *federation.train))
        messages, kept, optimizers, losses = [], [], [], []
        for client in who:
            mine = row(state.clients, client)
            sent = self.send(state.server, mine)
            received = self.start(sent, mine)
            context = Context(sent, mine, received, state.round)
            if method.keep_optimizer:
                optimizer = row(state.optimizers, client)
            else:
                optimizer = method.optimizer.init(received["params"])
            key = stream(state.seed, Purpose.TRAINING, state.round, int(ids[client]))
            rows = places[client][: lengths[client]]
            trained = self.train(federation, context, optimizer, rows, key)
            message, new = method.finish(context, trained)
            messages.append(message)
            kept.append(new)
            optimizers.append(trained.optimizer if method.keep_optimizer else row(state.optimizers, client))
            losses.append(float(trained.loss))
        stack = lambda rows: jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)  # noqa: E731
        weights = method.weights(jnp.asarray(lengths[who], jnp.int32))
        weights = jnp.where(jnp.asarray([client in invisible for client in who]), 0, weights)
        moment = Moment(state.round, stream(state.seed, Purpose.SERVER, state.round))
        server, clients = self.serve(state.server, stack(kept), stack(messages), weights, moment)
        put = lambda everyone, some: jax.tree.map(  # noqa: E731
            lambda a, b: jnp.asarray([b[who.index(i)] if i in who else a[i] for i in range(len(ids))]), everyone, some
        )
        after = State(
            state.seed, state.round + 1, server, put(state.clients, clients), put(state.optimizers, stack(optimizers))
        )
        return after, losses
