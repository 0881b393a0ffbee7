"""Variables by label: which leaves are shared, which are personal, which stay with the client."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import traverse_util

from fdgjax.utils.errors import UserError

PyTree = Any
Variables = dict[str, Any]
"""Flax variables of one client model: `{"params": ..., "batch_stats": ...}`."""

LABELS = {
    "shared": "one value for all clients, aggregated by the server",
    "personal": "sent to the server, which gives each client its own value",
    "local": "never leaves the client",
}

FROZEN = "frozen"
"""Shown instead of a label for the variables of a frozen trunk (`fdgjax.models.frozen`), which belong to no client and
are never trained or sent. No method assigns it."""


def flatten(variables: Variables) -> dict[str, jax.Array]:
    """Leaves by path, `{"params/head/kernel": array}`."""
    return traverse_util.flatten_dict(variables, sep="/")


def unflatten(leaves: Mapping[str, Any]) -> Variables:
    """The inverse of `flatten`."""
    return traverse_util.unflatten_dict(dict(leaves), sep="/")


def label_table(variables: Variables, label: Callable[[str], str]) -> dict[str, str]:
    """The label of every leaf by path; raises a `UserError` if `label` returns a word that is not in `LABELS`."""
    table = {path: label(path) for path in flatten(variables)}
    wrong = {path: word for path, word in table.items() if word not in LABELS}
    if wrong:
        path, word = next(iter(wrong.items()))
        raise UserError(f"label '{word}' for variable '{path}'; expected one of {', '.join(LABELS)}")
    return table


def module_of(path: str) -> str:
    """The module that a leaf belongs to: `conv_1/bn` for `params/conv_1/bn/scale`."""
    return path.partition("/")[2].rpartition("/")[0]


def norm_paths(shapes: Variables) -> frozenset[str]:
    """The paths of the modules that keep batch statistics, such as BatchNorm layers."""
    return frozenset(module_of(path) for path in flatten(shapes) if path.startswith("batch_stats/"))


def select(variables: Variables, label: Callable[[str], str], *wanted: str) -> Variables:
    """The leaves whose label is among `wanted`, with the same nesting; all others are left out."""
    kept = {path: leaf for path, leaf in flatten(variables).items() if label(path) in wanted}
    return unflatten(kept)


def merge(*parts: Variables) -> Variables:
    """One tree of variables from disjoint parts made by `select`."""
    leaves: dict[str, jax.Array] = {}
    for part in parts:
        leaves.update(flatten(part))
    return unflatten(leaves)


def dtype_and_shape(leaf: Any) -> str:
    """`float32 [3, 2]`."""
    return f"{jnp.result_type(leaf)} {list(jnp.shape(leaf))}"


def bytes_of(tree: PyTree) -> int:
    """The total bytes of all leaves, which are arrays or their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def bytes_by_label(shapes: Variables, label: Callable[[str], str]) -> Mapping[str, int]:
    """The bytes of one client model's variables, by label."""
    totals = dict.fromkeys(LABELS, 0)
    for path, leaf in flatten(shapes).items():
        totals[label(path)] += bytes_of(leaf)
    return totals
