"""What a method would reveal besides what noise covers, found by tracing its functions.

Each result is followed back to the arguments it depends on. Where clients are protected, nothing but its update may
leave a client, and the server's state may depend on updates alone; where samples are protected, all that a client keeps
and sends may depend on the parameters that it trained alone. What is not certain to be harmless is refused.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fdgjax.contract import Batch, Context, Method, PyTree, ServerStep, Trained
from fdgjax.data.federation import Federation
from fdgjax.engine.dependence import depends, which_depend
from fdgjax.engine.local import take_batch
from fdgjax.engine.traffic import Traffic, traffic
from fdgjax.utils.random import any_key

FREEZE = "config.model.frozen_statistics keeps those of pretrained weights"
"""How a network with BatchNorm is protected."""
TRIED_PAIRS = 8
"""Pairs of samples at which it is tried whether a loss mixes them."""


def states(method: Method, federation: Federation) -> tuple[PyTree, PyTree]:
    """The shapes of the server's and the clients' states."""
    shapes: tuple[PyTree, PyTree] = jax.eval_shape(method.init, any_key(), federation)
    return shapes


def first_states(method: Method, federation: Federation) -> tuple[PyTree, PyTree]:
    """The server's and the clients' states before the first round."""
    made: tuple[PyTree, PyTree] = jax.jit(lambda key: method.init(key, federation))(jax.random.key(0))
    return made


def begins_from_data(method: Method, federation: Federation) -> bool:
    """Whether the states before the first round depend on the clients' samples or on how many they have."""
    data = (federation.inputs, federation.labels, federation.train, federation.validation, federation.test)

    def begin(data: PyTree, federation: Federation, key: jax.Array) -> PyTree:
        images, labels, train, validation, test = data
        own = federation._replace(inputs=images, labels=labels, train=train, validation=validation, test=test)
        return method.init(key, own)

    return depends(begin, data, federation, any_key())


def next_states(method: Method, rows: PyTree, counts: jax.Array, server: PyTree, messages: PyTree) -> Any:
    """The next states of the server and of the clients whose rows these are."""
    aggregate, _ = method.aggregate(server, rows, messages, method.weights(counts))
    return method.update(server, rows, aggregate, ServerStep(jnp.zeros((), jnp.int32), jax.random.key(1)))


def next_server(method: Method, source: str) -> Callable[..., PyTree]:
    """The server's next state as a function whose first argument is the clients' `rows` or `counts`, as `source`
    says."""

    def after(first: PyTree, other: PyTree, server: PyTree, messages: PyTree) -> PyTree:
        rows, counts = {"rows": (first, other), "counts": (other, first)}[source]
        return next_states(method, rows, counts, server, messages)[0]

    return after


def client_leaks(method: Method, federation: Federation) -> Iterator[str]:
    """Reasons why noise on the updates would not cover what the method shows of a client; cheap ones first."""
    if method.pooled:
        yield "its data are pooled at one client, so that no client sends an update"
        return
    travelling = traffic(method, federation)
    update = method.updates.get(travelling.message)
    if not method.averaged or not optax.tree.size(update):
        yield "its server does not take one mean of the clients' updates, which is what noise covers"
    if optax.tree.size(travelling.message) != optax.tree.size(update):
        yield "its clients send more than their updates, and noise covers these alone"
    if noisy_statistics(method, federation, travelling):
        yield f"its clients send statistics such as BatchNorm's, whose variances noise could make negative ({FREEZE})"
    if begins_from_data(method, federation):
        yield "its initial state depends on clients' samples or on how many they have, which no noise covers"
    server, clients = states(method, federation)
    counts = federation.train.length
    messages = stacked(travelling.message, len(federation.ids))
    if depends(next_server(method, "counts"), counts, clients, server, messages):
        yield "its server weighs clients by their numbers of samples, which no noise covers (method.weighting=uniform)"
    if depends(next_server(method, "rows"), clients, counts, server, messages):
        yield "its server reads what clients keep, which no noise covers"
    if depends(lambda rows, server: method.unseen(server, rows), clients, server):
        yield "its model for an unseen domain depends on what clients keep, which no noise covers"


def sample_leaks(method: Method, federation: Federation) -> Iterator[str]:
    """Reasons why noise on the gradients would not cover what the method shows of a sample; cheap ones first."""
    travelling = traffic(method, federation)
    if changes_others(method, federation, travelling):
        yield f"its clients train variables besides parameters, such as statistics of whole batches ({FREEZE})"
    if method.prepare is not None:
        yield "its clients compute something from their samples before they train, which no noise covers"
    if method.extra_batch:
        yield "its loss mixes samples, so that no gradient belongs to one of them alone"
    if method.order is not None:
        yield "it orders its minibatches, and noise is accounted for samples that are drawn by chance"
    if begins_from_data(method, federation):
        yield "its initial state depends on clients' samples or on how many they have, which no noise covers"
    server, clients = states(method, federation)
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), clients)
    zero, loss = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), jnp.float32)
    optimizer = jax.eval_shape(method.optimizer.init, travelling.received["params"])

    def end(
        facts: tuple[jax.Array, jax.Array],
        row: PyTree,
        variables: PyTree,
        sent: PyTree,
        optimizer: PyTree,
        round_: jax.Array,
    ) -> PyTree:
        return method.finish(context_of(method, sent, row, round_), Trained(variables, optimizer, *facts))

    if depends(end, (loss, zero), row, travelling.received, travelling.sent, optimizer, zero):
        yield "its clients send or keep their loss or their number of steps, which no noise covers"
    counts = federation.train.length
    messages = stacked(travelling.message, len(federation.ids))
    if depends(next_server(method, "counts"), counts, clients, server, messages):
        yield "its server weighs clients by their numbers of samples, which no noise covers (method.weighting=uniform)"


def stacked(tree: PyTree, clients: int) -> PyTree:
    """Shapes with a client axis."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((clients, *leaf.shape), leaf.dtype), tree)


def changes_others(method: Method, federation: Federation, travelling: Traffic) -> bool:
    """Whether local training changes variables besides parameters by what it sees: gradients of single samples do not.
    BatchNorm's statistics never change where they are frozen (`fdgjax.nn.BatchStatistics`)."""
    others = {name: tree for name, tree in travelling.received.items() if name != "params"}
    if not others:
        return False
    batch = jax.eval_shape(lambda data: take_batch(data, jnp.zeros(2, jnp.int32), jnp.ones(2)), federation)
    batch = batch._replace(label_weight=batch.mask, extra_batch=batch if method.extra_batch else ())

    def changed(seen: tuple[PyTree, Batch, jax.Array, Context], others: PyTree) -> PyTree:
        params, batch, key, context = seen
        return method.objective({**others, "params": params}, batch, key, context)[1]

    return depends(changed, (travelling.received["params"], batch, any_key(), travelling.context), others)


def leaves_to_cover(method: Method, federation: Federation, travelling: Traffic) -> list[bool]:
    """Which leaves of a client's update noise has to cover: those that depend on what the client trained, found or
    keeps. BatchNorm's frozen statistics do not: a client sends no change of them."""
    variables = travelling.trained.variables
    if not changes_others(method, federation, travelling):
        variables = {"params": variables["params"]}
    own = (travelling.context.client, travelling.context.aux, travelling.trained._replace(variables=variables))

    def sent_back(own: tuple[PyTree, PyTree, Trained], sent: PyTree, round_: jax.Array) -> PyTree:
        row, aux, trained = own
        context = context_of(method, sent, row, round_)._replace(aux=aux)
        trained = trained._replace(variables={**context.received, **trained.variables})
        return method.updates.get(method.finish(context, trained)[0])

    return which_depend(sent_back, own, travelling.sent, travelling.context.round)


def context_of(method: Method, sent: PyTree, row: PyTree, round_: jax.Array) -> Context:
    """What a client knows while it trains, but for what it computed before."""
    return Context(sent, row, method.start(sent, row), round_)


def noisy_statistics(method: Method, federation: Federation, travelling: Traffic) -> bool:
    """Whether noise would cover variables besides parameters."""
    others = travelling.received.keys() - {"params"}
    paths = (path for path, _ in jax.tree.leaves_with_path(method.updates.get(travelling.message)))
    of_others = [any(getattr(key, "key", None) in others for key in path) for path in paths]
    return any(of_others) and any(
        map(all, zip(of_others, leaves_to_cover(method, federation, travelling), strict=True))
    )


class SomeClients(NamedTuple):
    """Up to three clients with numbers to try a method at: the server's first state, and of the clients the rows,
    random messages, and numbers of samples."""

    server: PyTree
    rows: PyTree
    messages: PyTree
    counts: jax.Array


def some_clients(method: Method, federation: Federation) -> SomeClients:
    """Some of the federation's clients."""
    server, clients = first_states(method, federation)
    some = min(3, len(federation.ids))
    rng = np.random.default_rng(0)

    def draw(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        return rng.normal(size=(some, *leaf.shape)).astype(leaf.dtype)

    rows = jax.tree.map(lambda leaf: leaf[:some], clients)
    messages = jax.tree.map(draw, traffic(method, federation).message)
    return SomeClients(server, rows, messages, federation.train.length[:some])


def takes_another_mean(method: Method, some: SomeClients) -> bool:
    """Whether the server's step on random updates differs from its step on their mean: the rule then looks at clients
    one by one, and has no effect where it is handed the mean alone."""
    server, rows, messages, counts = some

    def mean(leaf: np.ndarray) -> np.ndarray:
        return np.broadcast_to(leaf.mean(axis=0, dtype=leaf.dtype), leaf.shape)

    after = jax.jit(next_server(method, "counts"))
    by_each, by_mean = (after(counts, rows, server, each) for each in (messages, jax.tree.map(mean, messages)))
    return not _nearly(by_each, by_mean)


def mixes_rows(method: Method, some: SomeClients) -> bool:
    """Whether what a client keeps after the server's step depends on what others keep, or on how many samples they
    have: the first client's row is compared after steps that differ in the others alone."""
    server, rows, messages, counts = some

    def of_first(rows: PyTree, counts: jax.Array) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[0], next_states(method, rows, counts, server, messages)[1])

    def changed(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.number):
            return leaf
        return leaf.at[1:].add(1 + jnp.max(jnp.abs(leaf), initial=0))

    after = jax.jit(of_first)
    return not _nearly(after(rows, counts), after(jax.tree.map(changed, rows), changed(counts)))


def _nearly(left: PyTree, right: PyTree) -> bool:
    pairs = zip(*(map(np.asarray, jax.tree.leaves(tree)) for tree in (left, right)), strict=True)
    return all(np.allclose(a, b, rtol=1e-3, atol=1e-3 * float(np.abs(a).max(initial=0))) for a, b in pairs)


def mixes_samples(method: Method, federation: Federation) -> bool:
    """Whether the loss of two samples is not a sum of one term for each: replacing both then does not change it by the
    sum of the changes from replacing either. Several pairs are tried, as a loss can be flat at one of them, of one
    class or domain and of two, as it may compare those of one alone."""
    server, clients = first_states(method, federation)
    client = jax.tree.map(lambda leaf: leaf[0], clients)
    sent = method.send(server, client)
    received = method.start(sent, client)
    tried = (TRIED_PAIRS, 4, *federation.input_shape)
    images = np.random.default_rng(0).uniform(-1, 1, tried).astype(np.float32)

    def loss(tried: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        pair, labels, domains = tried
        batch = Batch(pair, labels, jnp.ones(2), jnp.ones(2), domains=domains)
        context = Context(sent, client, received, jnp.zeros((), jnp.int32))
        return method.objective(received, batch, jax.random.key(2), context)[0]

    # One of the first two samples with one of the last two.
    pairs = np.stack([each[[i, j]] for each in images for i, j in ((0, 2), (1, 2), (0, 3), (1, 3))])
    kinds = np.array([((0, second), (0, domain)) for second in (0, 1) for domain in (0, 1)], np.int32)
    each = (np.tile(pairs, (len(kinds), *[1] * (pairs.ndim - 1))), *np.repeat(kinds, len(pairs), axis=0).swapaxes(0, 1))
    losses = np.asarray(jax.jit(lambda each: jax.lax.map(loss, each))(each), np.float64).reshape(-1, 4)
    mixed = losses @ np.asarray([1.0, -1.0, -1.0, 1.0])
    return not np.all(np.abs(mixed) <= 1e-4 * np.maximum(1.0, np.abs(losses).max(axis=1)))


def why_not(method: Method, federation: Federation, *, samples: bool) -> str | None:
    """Why the method cannot run with noise that protects clients, or `samples`; None where it can.

    Args:
      method: any method, traced and not trained.
      federation: the data of one seed.
      samples: whether samples are protected rather than clients.
    """
    reasons = sample_leaks(method, federation) if samples else client_leaks(method, federation)
    reason = next(reasons, None)
    if reason:
        return reason
    if samples:
        compares = "its loss compares samples with each other, so that no gradient belongs to one of them alone"
        return compares if mixes_samples(method, federation) else None
    some = some_clients(method, federation)
    if mixes_rows(method, some):
        return "its server writes what one client keeps into what another keeps, which no noise covers"
    if takes_another_mean(method, some):
        return "its server looks at the clients' updates one by one, and noise covers their mean alone"
    return None
