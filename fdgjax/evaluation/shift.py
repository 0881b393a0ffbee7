"""How far domains are apart, and how their gradients agree: the two sides of FedGaLA's Theorem 1 and Figure 2."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Batch, Context, Objective, PyTree, Variables
from fdgjax.data.encoding import Encoding, as_inputs


class Minibatches(NamedTuple):
    """Of one domain: stored samples `[batches, batch, ...]` (images uint8, a frozen trunk's features or others), labels
    and domains int32 `[batches, batch]`, and how stored values become inputs."""

    inputs: np.ndarray
    labels: np.ndarray
    domains: np.ndarray
    encoding: Encoding | None = None


def minibatch_gradient(
    objective: Objective, variables: Variables, context: Context, samples: Minibatches, key: jax.Array
) -> PyTree:
    """The mean gradient of an objective with respect to the parameters, over minibatches.

    Minibatch b draws from `fold_in(key, b)`, so that with the same key all domains get the same random augmentation
    (Theorem 1, Assumption 1).
    """

    def add(total: PyTree, numbered: tuple[jax.Array, ...]) -> tuple[PyTree, None]:
        number, stored, labels, domains = numbered
        inputs, mask = as_inputs(stored, samples.encoding), jnp.ones(labels.shape, jnp.float32)
        batch = Batch(inputs, labels, mask, domains=domains)
        gradient = jax.grad(
            lambda params: objective({**variables, "params": params}, batch, jax.random.fold_in(key, number), context)[
                0
            ]
        )(variables["params"])
        return jax.tree.map(jnp.add, total, gradient), None

    zero = jax.tree.map(jnp.zeros_like, variables["params"])
    batches = len(samples.inputs)
    each = (samples.inputs, samples.labels, samples.domains)
    total, _ = jax.lax.scan(add, zero, (jnp.arange(batches), *map(jnp.asarray, each)))
    return jax.tree.map(lambda leaf: leaf / batches, total)


def tree_covariance(left: PyTree, right: PyTree) -> float:
    """`mean_p (a_p - mean a)(b_p - mean b)` over all numbers p of two trees of one structure, in float64."""
    a, b = (
        np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])
        for tree in (left, right)
    )
    return float(np.mean((a - a.mean()) * (b - b.mean())))


def tree_correlation(left: PyTree, right: PyTree) -> float:
    """The covariance over both standard deviations; 0 where a tree does not vary, as the gradient of a domain does that
    has no weight in a loss."""
    spread = math.sqrt(tree_covariance(left, left) * tree_covariance(right, right))
    return tree_covariance(left, right) / spread if spread else 0.0


def mutual_information(x: np.ndarray, y: np.ndarray) -> float:
    """`-1/2 sum_j log(1 - r_j^2)`, r_j the correlation of feature j over pairs of samples (FedGaLA, equation 7).

    It is exact where each pair of features is bivariate normal and independent of the others (Assumption 1). Chance
    alone adds about `m / (2 pairs)`.

    Args:
      x, y: `[pairs, m]`; a feature that does not vary on either side counts as independent.

    Returns:
      In nats.
    """
    x, y = (np.asarray(side, np.float64) - np.mean(side, axis=0, dtype=np.float64) for side in (x, y))
    norms = np.sqrt(np.sum(x**2, axis=0) * np.sum(y**2, axis=0))
    r = np.divide(np.sum(x * y, axis=0), norms, out=np.zeros_like(norms), where=norms > 0)
    return float(-0.5 * np.sum(np.log1p(-np.minimum(r**2, 1 - 1e-12))))


def pairs_of_a_class(
    rng: np.random.Generator, left: np.ndarray, right: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of random pairs of samples of the same class, one from each domain.

    Classes have the frequencies of both domains together; a class that one of them lacks is left out.

    Args:
      rng: draws the pairs.
      left, right: labels, int `[samples]`.
      count: number of pairs.
    """
    classes = np.intersect1d(left, right)
    counts = np.asarray([np.sum(left == label) + np.sum(right == label) for label in classes], np.float64)
    each = rng.multinomial(count, counts / counts.sum())
    of = lambda labels: np.concatenate(  # noqa: E731
        [rng.choice(np.flatnonzero(labels == label), n) for label, n in zip(classes, each, strict=True)]
    )
    return of(left), of(right)
