"""Whether a method's server needs nothing of the clients' messages but their weighted mean, found by running its step.

Secure aggregation hides each message and reveals a sum. It suits a method whose step is a function of

    mean = sum_i w_i message_i / sum_j w_j

and of what the server has anyway: its state, its part of the clients' rows, and the weights. This is the case exactly
if the step is the same after every message has been replaced by the mean, which is tried on random states and messages.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.aggregation.mean import mean
from fdgjax.contract import Method, PyTree
from fdgjax.data.federation import Federation
from fdgjax.deploy.leaves import Leaves, by_path
from fdgjax.deploy.placement import placement_of
from fdgjax.engine.round import RoundPlan, State, server_round
from fdgjax.engine.traffic import traffic

TRIES = 3
LONGEST = 100
"""The most training samples of a client in a trial."""
TOLERANCE = 1e-3
"""Relative to a leaf's largest number: rounding is far below, and a client's share in a step is far above."""
QUICKLY: Mapping[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""The programs run a few times on little."""


class Trial(NamedTuple):
    """A random round as the server meets it.

    state: the engine's, with all clients' rows. messages: `[clients, ...]`. alike: each of them replaced by their
    weighted mean. weights: `[clients]`.
    """

    state: State
    messages: PyTree
    alike: PyTree
    weights: jax.Array


def needs_only_mean(method: Method, plan: RoundPlan, federation: Federation) -> bool:
    """Whether the server's step, its defence included, depends on messages through their weighted mean alone.

    A step that reads single messages only beyond a threshold that no random message passes is not found.

    Args:
      method, plan: what the server runs; its training on its own samples reads no message and is left out.
      federation: any party's, as only its shapes count; with one client the answer is always yes.
    """
    at_server = placement_of(method, federation).server

    def step(state: State, messages: PyTree, weights: jax.Array) -> Leaves:
        own = method._replace(server_training=None)
        server, rows, *_ = server_round(own, plan, state, state.server, state.clients, messages, weights, federation)
        return by_path({"server": server, "rows": {path: x for path, x in by_path(rows).items() if path in at_server}})

    draw = jax.jit(trial_of(method, federation), compiler_options=dict(QUICKLY))
    after = jax.jit(step, compiler_options=dict(QUICKLY))
    for number in range(TRIES):
        trial = draw(np.uint32(number))
        each, alike = (after(trial.state, told, trial.weights) for told in (trial.messages, trial.alike))
        if not all(same_to_rounding(each[path], alike[path]) for path in each):
            return False
    return True


def trial_of(method: Method, federation: Federation) -> Callable[[jax.Array], Trial]:
    """The function that makes a trial from a seed."""
    clients, message = len(federation.ids), traffic(method, federation).message

    def draw(seed: jax.Array) -> Trial:
        keys = jax.random.split(jax.random.key(seed), 4)
        server, rows = shaken(method.init(keys[0], federation), keys[1])
        nothing = jax.tree.map(lambda leaf: jnp.zeros((clients, *leaf.shape), leaf.dtype), message)
        messages = shaken(nothing, keys[2])
        lengths = jax.random.choice(keys[3], jnp.arange(1, max(LONGEST, clients) + 1), (clients,), replace=False)
        weights = method.weights(lengths)
        middle, _ = mean(messages, weights)
        alike = jax.tree.map(lambda one, each: jnp.broadcast_to(one, each.shape), middle, messages)
        return Trial(State(seed, jnp.int32(1), server, rows, {}), messages, alike, weights)

    return draw


def shaken(tree: PyTree, key: jax.Array) -> PyTree:
    """The tree with standard normal noise on each float."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, max(1, len(leaves)))
    noisy = [
        leaf + jax.random.normal(one, leaf.shape, leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
        for leaf, one in zip(leaves, keys, strict=False)
    ]
    return jax.tree.unflatten(structure, noisy)


def same_to_rounding(one: jax.Array, other: jax.Array) -> bool:
    """Whether two arrays are finite and the same to rounding."""
    mine, others = (np.asarray(x, np.float64) for x in (one, other))
    return bool(np.all(np.abs(mine - others) <= TOLERANCE * np.max(np.abs(others), initial=0)))
