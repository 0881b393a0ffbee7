"""Which arguments of a function its results depend on, found by tracing it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Literal

from fdgjax.contract import PyTree

CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "checkpoint"})
"""Primitives that call another jaxpr once; of others, such as loops, every result counts as depending on every
argument."""


def traced(function: Callable[..., PyTree], *arguments: PyTree) -> Any:
    """The jaxpr of a function for arguments of these shapes."""
    return jax.make_jaxpr(function)(*arguments).jaxpr


def needed(jaxpr: Any, outputs: Sequence[bool]) -> list[bool]:
    """Which inputs of a jaxpr the selected outputs depend on."""
    wanted = set(variables(jaxpr.outvars, outputs))
    for equation in reversed(jaxpr.eqns):
        results = [var in wanted for var in equation.outvars]
        if any(results):
            wanted |= set(variables(equation.invars, read_by(equation, results)))
    return [var in wanted for var in jaxpr.invars]


def read_by(equation: Any, results: Sequence[bool]) -> list[bool]:
    """Which inputs of an equation the selected ones of its results depend on."""
    inner = next((value.jaxpr for value in equation.params.values() if hasattr(value, "jaxpr")), None)
    if equation.primitive.name in CALLS and inner is not None and len(inner.invars) == len(equation.invars):
        return needed(inner, results)
    return [True] * len(equation.invars)


def variables(atoms: Sequence[Any], chosen: Sequence[bool]) -> list[Any]:
    """The chosen ones of some inputs or outputs, without those that are numbers."""
    return [atom for atom, yes in zip(atoms, chosen, strict=True) if yes and not isinstance(atom, Literal)]


def depends(function: Callable[..., PyTree], *arguments: PyTree) -> bool:
    """Whether any result of the function depends on its first argument."""
    jaxpr = traced(function, *arguments)
    return any(needed(jaxpr, [True] * len(jaxpr.outvars))[: len(jax.tree.leaves(arguments[0]))])


def which_depend(function: Callable[..., PyTree], *arguments: PyTree) -> list[bool]:
    """Which leaves of the function's result depend on its first argument."""
    jaxpr = traced(function, *arguments)
    first, results = len(jax.tree.leaves(arguments[0])), range(len(jaxpr.outvars))
    return [any(needed(jaxpr, [other == one for other in results])[:first]) for one in results]
