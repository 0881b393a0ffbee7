"""Loops over a client's minibatches: as long as the client's own data are, or always as long as the longest client's.

A loop of dynamic length tests after every step whether it is over. On a CPU that costs nothing; from an accelerator the
outcome has to travel to the host before the next step may start, and XLA can neither unroll such a loop nor keep it on
the device.
"""

from collections.abc import Callable

import jax
import optax

from fdgjax.contract import PyTree

Step = Callable[[jax.Array, PyTree], PyTree]
Repeat = Callable[[jax.Array, int, Step, PyTree], PyTree]
"""A loop, `(turns, most, step, begin) -> end`: `step(i, carry)` for each i below `turns`, a number that the program
computes and that is at most `most`."""


def dynamic_loop(turns: jax.Array, most: int, step: Step, begin: PyTree) -> PyTree:
    """Ends after `turns`: no step is wasted. Under `vmap` it runs until the longest has ended."""
    del most
    return jax.lax.fori_loop(0, turns, step, begin)


def masked_loop(turns: jax.Array, most: int, step: Step, begin: PyTree, *, unroll: int = 1) -> PyTree:
    """Takes `most` turns; those beyond `turns` change nothing. `unroll` of them are written out at a time."""

    def masked(i: jax.Array, carry: PyTree) -> PyTree:
        return optax.tree.where(i < turns, step(i, carry), carry)

    return jax.lax.fori_loop(0, most, masked, begin, unroll=unroll)
