"""A sharpness-aware local step for any method: `method.sharpness`, the radius rho, and `method.sharpness_kind`.

The objective of the clients becomes sharpness-aware as a whole, its regularisers included; training at the server and
adaptation to an unseen domain stay as they are.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Method, PyTree
from fdgjax.methods.parts.extend import RowExtension, extend
from fdgjax.objectives.sharpness import moved_back, sharpness_aware
from fdgjax.utils.variables import flatten, unflatten


def sam(method: Method, h: Any) -> Method:
    """The client's own gradient is the direction."""
    return method._replace(objective=sharpness_aware(method.objective, h.sharpness))


def asam(method: Method, h: Any, biases: bool = True) -> Method:
    """The same, scaled by `|w| + eta`; without `biases`, a bias has the factor 1."""

    def scale(params: PyTree) -> PyTree:
        def factor(path: str, leaf: jax.Array) -> jax.Array:
            return jnp.abs(leaf) + h.sharpness_eta if biases or not path.endswith("bias") else jnp.ones_like(leaf)

        return unflatten({path: factor(path, leaf) for path, leaf in flatten(params).items()})

    return method._replace(objective=sharpness_aware(method.objective, h.sharpness, scale))


def lesam(method: Method, h: Any, norm: Callable[[PyTree], jax.Array] = optax.tree.norm) -> Method:
    """The last change of the received model, reversed, is the direction; a client's row holds the parameters that it
    received before, at first the initial ones."""
    row = RowExtension(lambda fresh: fresh.models()["params"], lambda context, trained: context.received["params"])
    extended = extend(method, row=row)
    objective = moved_back(extended.objective, h.sharpness, lambda context: context.client.more, norm)
    return extended._replace(objective=objective)


def sum_of_norms(tree: PyTree) -> jax.Array:
    """The sum of the leaves' norms."""
    return sum((jnp.linalg.norm(leaf.ravel()) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


KINDS: Mapping[str, Callable[[Method, Any], Method]] = {
    "sam": sam,
    "asam": asam,
    "asam_weights": partial(asam, biases=False),
    "lesam": lesam,
    "lesam_leaves": partial(lesam, norm=sum_of_norms),
}
"""The ways to choose the point near w: SAM's, ASAM's and LESAM's; `asam_weights` and `lesam_leaves` as in the official
code of FedASAM and FedLESAM."""


def with_sharpness(method: Method, h: Any) -> Method:
    """The method with a sharpness-aware objective, unless `h.sharpness` is 0."""
    return KINDS[h.sharpness_kind](method, h) if h.sharpness else method
