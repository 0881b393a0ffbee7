"""The seed axis: the same function over several whole runs, in one program."""

from collections.abc import Callable, Mapping
from typing import Any

import jax

from fdgjax.contract import PyTree
from fdgjax.data.federation import OF_SEED, Federation, has_seed_axis
from fdgjax.engine.clients import CLIENT_AXES, Over
from fdgjax.utils.registry import lookup

SEED_AXES: Mapping[str, Over] = {name: CLIENT_AXES[name].over for name in ("auto", "map", "vmap")}


def over_seeds(function: Callable[..., PyTree], axis: str) -> Callable[..., PyTree]:
    """`function(*trees, federation)` of one seed, as a function that also takes several seeds at once.

    Called with a federation of one seed it is `function` itself. Called with that of several (see `stack_seeds`), the
    trees and the result are stacked `[seeds, ...]`, and images, labels and domains are shared, not copied.

    Args:
      function: of one seed's pytrees and, as the last argument, its federation.
      axis: `"vmap"` (all seeds at once), `"map"` (one after another inside the same program) or `"auto"` (`map` on a
        CPU, `vmap` elsewhere). All give the same numbers, to rounding.

    Raises:
      UserError: unknown axis.
    """
    over = lookup("seed_axis", axis, SEED_AXES)

    def seeds(*arguments: Any) -> PyTree:
        *trees, federation = arguments
        if not has_seed_axis(federation):
            return function(*trees, federation)

        def one_seed(federation: Federation, trees: PyTree, tables: Mapping[str, PyTree]) -> PyTree:
            return function(*trees, federation._replace(**tables))

        own = {name: getattr(federation, name) for name in OF_SEED}
        return over(one_seed, 1)(federation, tuple(trees), own)

    return seeds


def each_seed(tree: PyTree, seeds: int) -> list[PyTree]:
    """One tree per seed, from one stacked `[seeds, ...]`; a single seed's tree has no such axis."""
    if seeds == 1:
        return [tree]
    leaves, structure = jax.tree.flatten(tree)
    return [jax.tree.unflatten(structure, [leaf[i] for leaf in leaves]) for i in range(seeds)]
