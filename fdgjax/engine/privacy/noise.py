"""Differential privacy inside a round: updates or gradients of bounded norm, summed with Gaussian noise.

Client level (McMahan et al., "Learning differentially private recurrent language models", 2018; Geyer et al., 2017). Of
the m participants, with updates u_i, clip C and noise multiplier z:

    c_i = u_i min(1, C / |u_i|)                 the norm is over the whole update; one that is not finite counts as zero
    u   = 1/m (sum_i c_i + N(0, z^2 C^2 I))     `server`; `clients`: each sends c_i + N(0, z^2 C^2 I / m)

The method's rule is handed u as every participant's update, so that whatever it does is made of u alone.

Sample level (Abadi et al., "Deep learning with differential privacy", 2016, Algorithm 1): see
`fdgjax.engine.privacy.dp_sgd`. `fdgjax.engine.privacy` computes what both cost, `fdgjax.engine.privacy.leakage` finds
the methods that may run with them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation.updates import largest_magnitude
from fdgjax.contract import Method, PyTree
from fdgjax.data.federation import Federation
from fdgjax.engine.privacy.leakage import leaves_to_cover
from fdgjax.engine.traffic import traffic
from fdgjax.utils.random import Purpose, stream
from fdgjax.utils.registry import lookup


class Privacy(NamedTuple):
    """How much of one client, or of one of its samples, a round reveals.

    clip: C, the largest norm of what one of them adds to a sum. noise: z, the noise's standard deviation over C.
    samples: whether samples are protected, in the gradients of local training, rather than clients, in their updates.
    where: who adds the noise where clients are protected, an entry of `WHERE`.
    """

    clip: float
    noise: float
    samples: bool = False
    where: str = "server"


def clip_norm(tree: PyTree, most: float) -> PyTree:
    """The tree scaled down to a norm of at most `most`, over all its leaves; zeros where a number is not finite.

    Squares neither overflow nor underflow, however large or small the numbers are.
    """
    leaves = [leaf for leaf in jax.tree.leaves(tree) if leaf.size]
    largest = largest_magnitude(leaves)
    usable = jnp.isfinite(largest)
    divisor = jnp.where(usable & (largest > 0), largest, 1)
    # The largest number becomes 1, so that this norm is at least 1.
    norm = jnp.sqrt(jnp.sum(jnp.array([jnp.sum(jnp.square(leaf / divisor)) for leaf in leaves] or [jnp.float32(1)])))
    norm = jnp.maximum(norm, 1)
    inside = largest <= most / norm

    def one(leaf: jax.Array) -> jax.Array:
        scaled = jnp.where(inside, leaf, leaf / divisor * (most / norm))
        return jnp.where(usable, scaled, 0).astype(leaf.dtype)

    return jax.tree.map(one, tree)


def gaussian_noise(key: jax.Array, tree: PyTree, deviation: float | jax.Array) -> PyTree:
    """Independent draws of N(0, deviation^2), one for each number of the tree."""
    return optax.tree.scale(deviation, optax.tree.random_like(key, tree, sampler=jax.random.normal))


def at_server(stacked: PyTree, deviation: float, ids: jax.Array, seed: jax.Array, round_: jax.Array) -> PyTree:
    """The noisy sum, the noise drawn once."""
    total = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), stacked)
    return optax.tree.add(total, gaussian_noise(stream(seed, Purpose.PRIVACY, round_), total, deviation))


def at_clients(stacked: PyTree, deviation: float, ids: jax.Array, seed: jax.Array, round_: jax.Array) -> PyTree:
    """The sum of noisy parts; each client's draw depends on its id, not on its place."""
    share = deviation / len(ids) ** 0.5

    def noisy(one: PyTree, client: jax.Array) -> PyTree:
        return optax.tree.add(one, gaussian_noise(stream(seed, Purpose.PRIVACY, round_, client), one, share))

    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), jax.vmap(noisy)(stacked, ids))


WHERE: Mapping[str, Callable[[PyTree, float, jax.Array, jax.Array, jax.Array], PyTree]] = {
    "server": at_server,
    "clients": at_clients,
}
"""Noisy sums over the participants, `(stacked [clients, ...], deviation, ids, seed, round) -> tree`."""


def private_messages(
    privacy: Privacy,
    method: Method,
    federation: Federation,
    messages: PyTree,
    ids: jax.Array,
    seed: jax.Array,
    round_: jax.Array,
) -> PyTree:
    """The messages with the noisy mean of the clipped updates as every participant's update.

    Args:
      privacy: clip, noise, and who adds it.
      method: what the messages are of; leaves of its updates that do not depend on a client (`leaves_to_cover`) are
        neither clipped nor changed.
      federation: as the method's functions see it; only shapes are used.
      messages: stacked, `[clients, ...]`.
      ids, seed, round_: of the random streams.
    """
    covered = leaves_to_cover(method, federation, traffic(method, federation))
    leaves, structure = jax.tree.flatten(method.updates.get(messages))
    own = [leaf for leaf, yes in zip(leaves, covered, strict=True) if yes]
    clipped = jax.vmap(partial(clip_norm, most=privacy.clip))(own)
    noisy_sum = lookup("where", privacy.where, WHERE)
    total = noisy_sum(clipped, privacy.noise * privacy.clip, ids, seed, round_)
    everyone = iter([jnp.broadcast_to(sum_ / len(ids), leaf.shape) for sum_, leaf in zip(total, own, strict=True)])
    after = [next(everyone) if yes else leaf for leaf, yes in zip(leaves, covered, strict=True)]
    return method.updates.set(messages, jax.tree.unflatten(structure, after))
