"""Clients as a Python list: the form of other frameworks, which rules accept besides the stacked one.

A rule's `updates` that are a `list` are a list of clients, `[tree_1, tree_2, ...]`, one pytree for each. Any other
root, tuples and NamedTuples included, is one tree stacked over the clients, with leaves `[clients, ...]`. So a stacked
tree whose own root is a list is given as a tuple.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import dtype_and_shape

AnyRule = TypeVar("AnyRule", bound=Callable[..., Any])


def stack(trees: Sequence[PyTree]) -> PyTree:
    """One tree with leaves `[clients, ...]` of the clients' trees.

    Raises:
      UserError: no client, or one whose tree, leaves' shapes or types are not those of the first.
    """
    if not len(trees):
        raise UserError("a rule got an empty list of clients; expected one pytree for each client")
    structure: Any = jax.tree.structure(trees[0])
    for number, tree in enumerate(trees):
        leaves, own = jax.tree.flatten(tree)
        if own != structure:
            raise UserError(
                f"client {number} of the list has the tree {own} and client 0 {structure}; expected one structure; a "
                "stacked tree whose root is a list is given as a tuple"
            )
        for (path, expected), leaf in zip(jax.tree.leaves_with_path(trees[0]), leaves, strict=True):
            if (np.shape(leaf), jnp.result_type(leaf)) != (np.shape(expected), jnp.result_type(expected)):
                got, first = dtype_and_shape(leaf), dtype_and_shape(expected)
                raise UserError(
                    f"client {number} of the list has {got} at {jax.tree_util.keystr(path) or 'its root'} and client 0 "
                    f"{first}; expected one shape and type; a stacked tree whose root is a list is given as a tuple"
                )
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


def accepting_lists(rule: AnyRule) -> AnyRule:
    """The rule, which also accepts lists of clients for its trees; with a list, weights may be a list of numbers.

    Its matrix products are computed in full precision: the 10 bits of TF32, a GPU's default, would show in cosines, and
    so in the weights.

    Raises:
      UserError: on use, like `stack`, or for another number of weights than of clients.
    """

    @functools.wraps(rule)
    @jax.default_matmul_precision("highest")
    def accepting(updates: PyTree, *more: Any, **named: Any) -> Any:
        if type(updates) is not list:
            return rule(updates, *more, **named)
        convert = functools.partial(matching_argument, clients=len(updates))
        return rule(stack(updates), *map(convert, more), **{key: convert(value) for key, value in named.items()})

    return cast(AnyRule, accepting)


def matching_argument(argument: Any, clients: int) -> Any:
    """Another argument of a rule whose updates are a list: a list of trees becomes a stacked one, of numbers an
    array."""
    if not isinstance(argument, list):
        return argument
    if len(argument) != clients:
        raise UserError(f"a rule got {clients} clients and another list of {len(argument)}; expected equal lengths")
    return jnp.asarray(argument, jnp.float32) if all(map(np.isscalar, argument)) else stack(argument)
