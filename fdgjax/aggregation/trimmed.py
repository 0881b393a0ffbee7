"""The trimmed mean and the median of every coordinate (Yin et al., 2018)."""

import jax
import jax.numpy as jnp

from fdgjax.aggregation.distances import counting_clients
from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.updates import rows
from fdgjax.aggregation.weighting import client_count, in_dtype
from fdgjax.contract import PyTree


@accepting_lists
def trimmed_mean(updates: PyTree, weights: PyTree | None = None, *, hostile: int = 1) -> tuple[PyTree, PyTree]:
    r"""The mean of every coordinate without its `hostile` smallest and largest values.

    With m clients that count and `u_(1)[j] <= ... <= u_(m)[j]` the values of coordinate j,

        u[j] = (u_(f+1)[j] + ... + u_(m-f)[j]) / (m - 2f).

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; a client counts where its weight is positive, and all who
        count do so equally.
      hostile: f; where it would leave no value, the largest number that leaves one or two.

    Returns:
      `(update, shares)`, the shares `[clients]` being those of the clients' values in the coordinates; they sum to one.

    References:
      Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018, Definition 2.
    """
    return without_ends(updates, counting_clients(weights, client_count(updates)), hostile)


@accepting_lists
def median(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
    """The median of every coordinate: the trimmed mean that leaves one value, or the two in the middle.

    Arguments and results are those of `trimmed_mean`.

    References:
      Yin et al., 2018, Definition 1.
    """
    clients = client_count(updates)
    return without_ends(updates, counting_clients(weights, clients), clients)


def without_ends(updates: PyTree, counts: jax.Array, trim: int) -> tuple[PyTree, jax.Array]:
    """The mean of each coordinate over the clients that count, without its `trim` smallest and largest values, and the
    clients' shares in it."""
    many = jnp.sum(counts)
    cut = jnp.minimum(trim, jnp.maximum(many - 1, 0) // 2)
    share = 1 / jnp.maximum(many - 2 * cut, 1).astype(jnp.float32)
    order = jnp.arange(len(counts))

    def kept(values: jax.Array) -> jax.Array:
        """Whether a client's value stays, `[clients, numbers]`: by its rank, ties in the order of the clients."""
        before = (values[None] < values[:, None]) | (
            (values[None] == values[:, None]) & (order[None] < order[:, None])[..., None]
        )
        rank = jnp.sum(before & counts[None, :, None], axis=1)
        return counts[:, None] & (rank >= cut) & (rank < many - cut)

    def one(leaf: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = rows(leaf)
        stay = kept(values)
        centre = jnp.sum(jnp.where(stay, share * values, 0), axis=0)
        return in_dtype(centre.reshape(leaf.shape[1:]), leaf.dtype), share * jnp.sum(stay, axis=1, dtype=jnp.float32)

    leaves, treedef = jax.tree.flatten(updates)
    centres, used = zip(*map(one, leaves), strict=True)
    numbers = max(sum(leaf[0].size for leaf in leaves), 1)
    return jax.tree.unflatten(treedef, centres), sum(used[1:], used[0]) / numbers
