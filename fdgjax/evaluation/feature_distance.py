"""How far an image's features are from those of all training images, by sums that clients may share.

Each client c sends, for its n_c images with features f in R^m and labels y: the counts n_y and totals t_y of each class
y, and the products P = sum f f^T. Their sums over the clients give what pooling the images would:

    mean_y = t_y / n_y        S = (P - sum_y n_y mean_y mean_y^T) / n

S is the covariance within classes, and is regularised towards a multiple of the identity (`shrinkage`):

    C = (1 - a) S + a (tr S / m) I

The distance of features f is Mahalanobis' to the nearest class mean (Lee, Lee, Lee and Shin, 2018), in units of the
square root of m, so that it is about 1 for training images whatever the network:

    d(f) = min_y sqrt((f - mean_y)^T C^-1 (f - mean_y) / m)
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class FeatureSums(NamedTuple):
    """What a client shares, in float64: counts `[classes]`, totals `[classes, m]` and products `[m, m]`."""

    counts: np.ndarray
    totals: np.ndarray
    products: np.ndarray


class FeatureSpace(NamedTuple):
    """What distances are computed from, in float32.

    origin: the mean of all features, `[m]`. whitening: W with `W W^T = C^-1 / m`, `[m, m]`.
    centres: the class means in these coordinates, `(mean_y - origin) W`, `[classes with images, m]`.
    """

    origin: np.ndarray
    whitening: np.ndarray
    centres: np.ndarray


def feature_sums(features: np.ndarray, labels: np.ndarray, classes: int) -> FeatureSums:
    """The sums of some images.

    Args:
      features: `[n, m]`.
      labels: int `[n]`.
      classes: number of classes.
    """
    values, of_class = np.asarray(features, np.float64), np.eye(classes)[labels]
    return FeatureSums(of_class.sum(axis=0), of_class.T @ values, values.T @ values)


def added(each: Iterable[FeatureSums]) -> FeatureSums:
    """The sums of all images of which `each` are the sums; at least one."""
    return functools.reduce(lambda total, one: FeatureSums(*map(np.add, total, one)), each)


def feature_space(sums: FeatureSums) -> FeatureSpace:
    """What distances are computed from; the sums are of one image at least."""
    n, present = sums.counts.sum(), sums.counts > 0
    counts, totals = sums.counts[present], sums.totals[present]
    means, origin = totals / counts[:, None], totals.sum(axis=0) / n
    covariance = regularised((sums.products - totals.T @ means) / n, n)
    whitening = np.linalg.inv(np.linalg.cholesky(covariance)).T / np.sqrt(len(origin))
    found = (origin, whitening, (means - origin) @ whitening)
    return FeatureSpace(*(array.astype(np.float32) for array in found))


def regularised(covariance: np.ndarray, n: float) -> np.ndarray:
    """C for S and n images; the identity where the features do not vary."""
    size = len(covariance)
    mean = np.trace(covariance) / size
    if mean <= 0:
        return np.eye(size)
    a = max(shrinkage(covariance, n), float(np.finfo(np.float32).eps))
    return (1 - a) * covariance + a * mean * np.eye(size)


def shrinkage(covariance: np.ndarray, n: float) -> float:
    """a of the oracle approximating shrinkage estimator for normal features (Chen, Wiesel, Eldar and Hero, 2010,
    equation 23), as scikit-learn computes it; it needs nothing but the covariance `[m, m]` and n."""
    size = len(covariance)
    squares, mean = np.mean(covariance**2), np.trace(covariance) / size
    difference = (n + 1) * (squares - mean**2 / size)
    return 1.0 if difference <= 0 else float(min((squares + mean**2) / difference, 1.0))


def distances_in(space: FeatureSpace, features: jax.Array) -> jax.Array:
    """d of features `[n, m]`, float32 `[n]`."""
    placed = (features.astype(jnp.float32) - jnp.asarray(space.origin)[None]) @ jnp.asarray(space.whitening)
    each = jax.lax.map(lambda centre: jnp.sum((placed - centre[None]) ** 2, axis=1), jnp.asarray(space.centres))
    return jnp.sqrt(jnp.min(each, axis=0))
