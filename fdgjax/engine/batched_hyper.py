"""Methods that differ in numbers alone, as one program: learning rates and weights are its arguments, one for each seed
of the seed axis."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.contract import Method, PyTree
from fdgjax.engine.seeds import over_seeds


class Undecided(Exception):
    """Control flow in Python depends on a number on which the members of a family differ."""


class TracedNumber:
    """A hyperparameter that has a value for each member of a family.

    In arithmetic it is a traced scalar, weakly typed as a Python float is; functions of JAX such as `jnp.where` refuse
    it, and take `jnp.asarray(h.ema)`. In Python's control flow (`if h.clip`, `h.decay != 1`) it gives the outcome on
    which all members agree.

    Raises:
      Undecided: they do not agree, or a Python float is asked for and they have different ones.
    """

    __array_ufunc__ = None
    # Unhashable, so that no cache keeps it: it is valid in one trace only.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, traced: jax.Array, values: tuple[float, ...]) -> None:
        self.traced, self.values = traced, values

    def agreed(self, of: Callable[[float], Any]) -> Any:
        """`of` each member's value, which has to be the same for all."""
        first, *others = [of(value) for value in self.values]
        if any(other != first for other in others):
            raise Undecided(f"members of a family differ: {self.values}")
        return first

    def __jax_array__(self) -> jax.Array:
        return self.traced

    def __bool__(self) -> bool:
        return bool(self.agreed(bool))

    def __float__(self) -> float:
        return float(self.agreed(float))

    def __eq__(self, other: object) -> Any:
        return self.compared(other, lambda a, b: a == b)

    def __ne__(self, other: object) -> Any:
        return self.compared(other, lambda a, b: a != b)

    def __lt__(self, other: Any) -> Any:
        return self.compared(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return self.compared(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return self.compared(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return self.compared(other, lambda a, b: a >= b)

    def compared(self, other: Any, how: Callable[[Any, Any], Any]) -> Any:
        """The comparison with a Python number, on which all members have to agree; with an array, an array."""
        if isinstance(other, int | float):
            return self.agreed(lambda value: how(value, other))
        return how(self.traced, other)

    def __neg__(self) -> jax.Array:
        return -self.traced

    def __add__(self, other: Any) -> jax.Array:
        return self.traced + untraced(other)

    def __radd__(self, other: Any) -> jax.Array:
        return untraced(other) + self.traced

    def __sub__(self, other: Any) -> jax.Array:
        return self.traced - untraced(other)

    def __rsub__(self, other: Any) -> jax.Array:
        return untraced(other) - self.traced

    def __mul__(self, other: Any) -> jax.Array:
        return self.traced * untraced(other)

    def __rmul__(self, other: Any) -> jax.Array:
        return untraced(other) * self.traced

    def __truediv__(self, other: Any) -> jax.Array:
        return self.traced / untraced(other)

    def __rtruediv__(self, other: Any) -> jax.Array:
        return untraced(other) / self.traced

    def __pow__(self, other: Any) -> jax.Array:
        return self.traced ** untraced(other)

    def __rpow__(self, other: Any) -> jax.Array:
        return untraced(other) ** self.traced


def untraced(operand: Any) -> Any:
    """The traced scalar of a `TracedNumber`; anything else unchanged."""
    return operand.traced if isinstance(operand, TracedNumber) else operand


class BatchedHyper(NamedTuple):
    """A method for each seed of a program.

    values: the numbers in which they differ, at least one, each with a value for every seed.
    of: the method of one seed, given its numbers.
    """

    values: Mapping[str, tuple[float, ...]]
    of: Callable[[Mapping[str, TracedNumber]], Method]


def over_methods(function: Callable[..., PyTree], method: Method | BatchedHyper, axis: str) -> Callable[..., PyTree]:
    """`function(method, *trees, federation)` over seeds as by `over_seeds`, where each may have a method of its own."""
    if not isinstance(method, BatchedHyper):
        return over_seeds(partial(function, method), axis)
    batched = method

    def one_seed(seed: jax.Array, *arguments: Any) -> PyTree:
        own = {name: TracedNumber(pick(seed, values), values) for name, values in batched.values.items()}
        return function(batched.of(own), *arguments)

    several = over_seeds(one_seed, axis)

    def each_with_its_own(*arguments: Any) -> PyTree:
        first = next(iter(batched.values.values()))
        return several(jnp.arange(len(first)), *arguments)

    return each_with_its_own


def pick(place: jax.Array, values: Sequence[float]) -> jax.Array:
    """`values[place]`, weakly typed as a Python float is, so that it changes no array's dtype."""
    chosen = jnp.asarray(values[0])
    for i, value in enumerate(values):
        chosen = jnp.where(place == i, value, chosen)
    return chosen
