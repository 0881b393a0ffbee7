"""FINCH: clusters of vectors that follow from each one's nearest neighbour, without a number of clusters to choose."""

import jax
import jax.numpy as jnp


def first_neighbour_clusters(vectors: jax.Array, there: jax.Array) -> jax.Array:
    """Which vectors are of one cluster, bool `[n, n]`.

    Every vector is joined with its nearest one by cosine, and what is connected is a cluster; then clusters are
    joined in the same way by the cosines of their means, as long as more than one is left.

    Args:
      vectors: `[n, m]`.
      there: bool `[n]`, which of them take part; the others are in no cluster.

    References:
      Sarfraz, Sharma and Stiefelhagen, "Efficient parameter-free clustering using first neighbor relations", CVPR 2019,
      equation 1 and Algorithm 1, of whose partitions this is the last with more than one cluster, else the first.
    """
    doublings = max(len(vectors) - 1, 1).bit_length()
    same = joined(vectors, jnp.eye(len(vectors), dtype=bool) & there[:, None], doublings)
    # Each joining at least halves the number of clusters.
    for _ in range(doublings):
        coarser = joined(vectors, same, doublings)
        same = jnp.where(cluster_count(coarser) > 1.5, coarser, same)
    return same


def joined(vectors: jax.Array, same: jax.Array, doublings: int) -> jax.Array:
    """The clusters after each is joined with its nearest one."""
    there = jnp.diagonal(same)
    means = cluster_means(vectors, same)
    lengths = jnp.linalg.norm(means, axis=1, keepdims=True)
    units = means / jnp.where(lengths > 0, lengths, 1)
    cosines = jnp.matmul(units, units.T, precision=jax.lax.Precision.HIGHEST)
    others = there[:, None] & there[None, :] & ~same
    nearest = jnp.argmax(jnp.where(others, cosines, -jnp.inf), axis=1)
    linked = jax.nn.one_hot(nearest, len(vectors), dtype=bool) & others
    same = same | linked | linked.T
    for _ in range(doublings):
        same = jnp.matmul(same.astype(jnp.float32), same.astype(jnp.float32)) > 0
    return same


def cluster_means(vectors: jax.Array, same: jax.Array) -> jax.Array:
    """The mean of each vector's cluster, `[n, m]`; zero for one in no cluster."""
    members = same.astype(jnp.float32)
    sums = jnp.matmul(members, jnp.where(jnp.diagonal(same)[:, None], vectors, 0), precision=jax.lax.Precision.HIGHEST)
    return sums / jnp.maximum(jnp.sum(members, axis=1), 1)[:, None]


def cluster_shares(same: jax.Array) -> jax.Array:
    """One over the size of each vector's cluster, `[n]`; 0 for one in no cluster."""
    sizes = jnp.sum(same.astype(jnp.float32), axis=1)
    return jnp.where(sizes > 0, 1 / jnp.maximum(sizes, 1), 0)


def cluster_count(same: jax.Array) -> jax.Array:
    """The number of clusters, float32."""
    return jnp.sum(cluster_shares(same))
