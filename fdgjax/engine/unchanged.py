"""A round leaves the structure, the shapes and the types of the states as they were, and weighs each client."""

import jax
import numpy as np

from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import dtype_and_shape

ABSENT = "nothing"


def check_unchanged(function: str, before: PyTree, after: PyTree, what: str) -> None:
    """Raises a `UserError` for the first leaf that a function of a method adds, takes away, or gives another shape or
    type: the next round could not be computed, and a row written into integers would be rounded.

    Args:
      function: the name of the function of `fdgjax.contract.Method`.
      before, after: the state that it got, and what it made of it.
      what: the state in words.
    """
    old, new = leaves_of(before), leaves_of(after)
    for place in dict.fromkeys([*old, *new]):
        was, now = old.get(place, ABSENT), new.get(place, ABSENT)
        if was != now:
            raise UserError(
                f"the method's {function} made {now} of {was} at {place or 'the root'} ({what}); expected the "
                "shapes, types and names that Method.init gave, as every round begins with them"
            )


def check_weights(weights: jax.Array, lengths: jax.Array) -> None:
    """Raises a `UserError` unless there is one weight for each client; `lengths`: the clients' numbers of samples."""
    if jax.numpy.shape(weights) != lengths.shape:
        raise UserError(
            f"the method's weights made {dtype_and_shape(weights)} of the numbers of samples of {len(lengths)} "
            "clients; expected one weight for each"
        )


def check_weight_values(weights: jax.Array, lengths: jax.Array) -> None:
    """Raises a `UserError` unless the weights, outside of traced programs, are numbers from 0, and not all 0."""
    check_weights(weights, lengths)
    found = np.asarray(weights)
    if not (np.isfinite(found).all() and (found >= 0).all() and found.any()):
        raise UserError(
            f"the method's weights made {found.tolist()} of the clients' numbers of samples, "
            f"{np.asarray(lengths).tolist()}; expected finite numbers from 0, not all 0"
        )


def check_rows(clients: PyTree, count: int) -> None:
    """Raises a `UserError` for the first leaf of the clients' states that does not have a row for each of them."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(clients):
        if jax.numpy.shape(leaf)[:1] != (count,):
            place = jax.tree_util.keystr(path) or "the root"
            raise UserError(
                f"the method's init made {dtype_and_shape(leaf)} at {place} of the clients' states; expected a row for "
                f"each of {count} clients, [{count}, ...]"
            )


def leaves_of(tree: PyTree) -> dict[str, str]:
    """The type and shape of each leaf, such as `float32 [3, 2]`, by its place in the tree."""
    return {
        jax.tree_util.keystr(path): dtype_and_shape(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
