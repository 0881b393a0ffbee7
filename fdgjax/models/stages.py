"""Stages: a network as a sequence of named steps, so that its first ones can be frozen.

A network's `__call__` makes its steps, functions of one array, and runs those of its attribute `part`; the names of all
steps but the last, which makes logits of features, are beside it as `STAGES`. Variables have the same paths in a part
as in the whole.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax


class StageRange(NamedTuple):
    """The steps from `begin` up to `end`; None for the last step, too."""

    begin: int = 0
    end: int | None = None


ALL_STAGES = StageRange()


def through(steps: Sequence[Callable[[jax.Array], jax.Array]], part: StageRange, x: jax.Array) -> jax.Array:
    """`x` through the steps of a part."""
    for step in steps[part.begin : part.end]:
        x = step(x)
    return x
