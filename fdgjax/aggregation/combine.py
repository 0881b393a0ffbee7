"""Rules made of rules: by label (`partition`) and in sequence (`chain`)."""

from collections.abc import Callable, Mapping

import jax

from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.weighting import client_count, normalise_weights
from fdgjax.contract import PyTree, Rule
from fdgjax.utils.errors import UserError


def partition(rules: Mapping[str, Rule], labels: PyTree | Callable[[PyTree], PyTree]) -> Rule:
    """A rule that treats each leaf by the rule of its label, as `optax.partition` does with transformations.

    Args:
      rules: a rule for each label.
      labels: a pytree (or prefix) of labels for `updates`, or a function from `updates` to one.

    Returns:
      A rule; its coefficients are a tree like `updates` with one `[clients]` per leaf.

    Raises:
      UserError: on use, for a leaf whose label has no rule.
    """

    @accepting_lists
    def rule(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        tree = labels(updates) if callable(labels) else labels
        leaves, treedef = jax.tree.flatten(updates)
        words = jax.tree.leaves(jax.tree.broadcast(tree, updates))
        if missing := set(words) - set(rules):
            raise UserError(
                f"partition got leaves labelled {sorted(missing)}; expected only labels with a rule: {sorted(rules)}"
            )
        weights = normalise_weights(weights, client_count(updates))
        whole = jax.tree_util.all_leaves([weights])
        shares = jax.tree.leaves(jax.tree.broadcast(weights, updates))
        combined: dict[int, jax.Array] = {}
        coefficients: dict[int, jax.Array] = {}
        for label, one in rules.items():
            places = [i for i, word in enumerate(words) if word == label]
            if places:
                part = tuple(leaves[i] for i in places)  # a list would be taken for a list of clients
                update, used = one(part, weights if whole else tuple(shares[i] for i in places))
                combined.update(zip(places, update, strict=True))
                coefficients.update(zip(places, jax.tree.leaves(jax.tree.broadcast(used, part)), strict=True))
        in_order = range(len(leaves))
        return (
            jax.tree.unflatten(treedef, [combined[i] for i in in_order]),
            jax.tree.unflatten(treedef, [coefficients[i] for i in in_order]),
        )

    return rule


def chain(*rules: Rule) -> Rule:
    """Rules in sequence: the coefficients of each are the weights of the next, and the last one's update is the result.

    `chain(cosine_softmax, cosine_softmax)` aligns a second time, with the direction found by the first.

    Raises:
      UserError: without any rule.
    """
    if not rules:
        raise UserError("chain got no rule; expected at least one, for example chain(mean)")

    @accepting_lists
    def rule(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        weights = normalise_weights(weights, client_count(updates))
        for one in rules:
            update, weights = one(updates, weights)
        return update, weights

    return rule
