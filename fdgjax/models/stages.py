"""Stages: a network as a sequence of named steps, so that its first ones can be frozen.

A network's `__call__` makes its steps, functions of one array, and runs those that its attribute `part` selects. Its
module's `STAGES` names all steps but the last, which maps features to logits. Variables have the same paths in a part
as in the whole network.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax


class StageRange(NamedTuple):
    """The steps from `begin` up to but not including `end`; None includes the last step."""

    begin: int = 0
    end: int | None = None


ALL_STAGES = StageRange()


def through(steps: Sequence[Callable[[jax.Array], jax.Array]], part: StageRange, x: jax.Array) -> jax.Array:
    """Applies the steps of a part to `x`."""
    for step in steps[part.begin : part.end]:
        x = step(x)
    return x
