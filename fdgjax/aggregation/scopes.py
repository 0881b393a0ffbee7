"""The scope of a rule: all leaves together, or each leaf by itself."""

from collections.abc import Callable, Mapping

import jax

from fdgjax.aggregation.updates import Updates, explicit
from fdgjax.aggregation.weighting import normalise_weights
from fdgjax.contract import PyTree

UpdatesRule = Callable[[Updates, PyTree | None], tuple[PyTree, PyTree]]
"""A rule over `Updates`, `(updates, weights) -> (update, coefficients)`."""


def leaf_scope(rule: UpdatesRule) -> UpdatesRule:
    """The rule applied to each leaf by itself; its coefficients become a tree with one `[clients]` per leaf."""

    def per_leaf(updates: Updates, weights: PyTree | None) -> tuple[PyTree, PyTree]:
        tree = updates.stacked()
        leaves, treedef = jax.tree.flatten(tree)
        shares = jax.tree.leaves(jax.tree.broadcast(normalise_weights(weights, updates.clients), tree))
        results = [rule(explicit(leaf), share) for leaf, share in zip(leaves, shares, strict=True)]
        combined, coefficients = zip(*results, strict=True)
        return jax.tree.unflatten(treedef, combined), jax.tree.unflatten(treedef, coefficients)

    return per_leaf


def tree_scope(rule: UpdatesRule) -> UpdatesRule:
    """The rule applied to all leaves together."""
    return rule


SCOPES: Mapping[str, Callable[[UpdatesRule], UpdatesRule]] = {"tree": tree_scope, "leaf": leaf_scope}
