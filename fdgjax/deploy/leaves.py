"""Arrays by path: what messages and files have of the trees of a method's state."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError

Leaves = dict[str, Any]
"""Arrays by path, such as `.base.local['params']['kernel']`."""


def by_path(tree: PyTree) -> Leaves:
    """The leaves of a tree by their paths, in the tree's order."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def with_leaves(like: PyTree, leaves: Mapping[str, Any], absent: Callable[[Any], Any]) -> PyTree:
    """A tree with the structure of `like` and these leaves; `absent(leaf of like)` for those that are not given."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaves[key] if (key := jax.tree_util.keystr(path)) in leaves else absent(leaf), like
    )


def blank(leaf: Any) -> np.ndarray:
    """Zeros of a leaf's shape and type, as a NumPy array, for which no program is compiled."""
    return np.zeros(leaf.shape, leaf.dtype)


def prefixed(prefix: str, leaves: Leaves) -> Leaves:
    """The leaves with a prefix before their paths, by which one message or file has several trees."""
    return {f"{prefix}{path}": leaf for path, leaf in leaves.items()}


def without_prefix(prefix: str, leaves: Leaves) -> Leaves:
    """The inverse of `prefixed`: of all leaves, those whose paths have the prefix."""
    return {path.removeprefix(prefix): leaf for path, leaf in leaves.items() if path.startswith(prefix)}


def checked_leaves(leaves: Leaves, like: PyTree, what: str) -> Leaves:
    """The leaves, checked to have the paths, shapes and types of the tree `like`.

    Raises:
      UserError: a leaf is missing or differs in shape or type.
    """
    for path, wanted in by_path(like).items():
        found = leaves.get(path)
        got = None if found is None else (found.shape, str(found.dtype))
        if got != (wanted.shape, str(wanted.dtype)):
            raise UserError(
                f"{what} has {got or 'nothing'} at '{path}'; expected {wanted.shape} {wanted.dtype}; both sides need "
                "the same version of fdgjax and the same config"
            )
    return leaves


def checked_tree(leaves: Leaves, like: PyTree, what: str) -> PyTree:
    """The tree that `checked_leaves` are the leaves of."""
    return with_leaves(like, checked_leaves(leaves, like, what), blank)
