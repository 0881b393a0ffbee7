"""A user's method whose mistakes are said in one line: which of its functions, where, and what it should return.

Without it a wrong result fails somewhere in the engine, in a program that JAX traces, where nothing names the function.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import (
    Batch,
    Context,
    Method,
    Model,
    Objective,
    ObjectiveResult,
    Prepared,
    PseudoLabels,
    PyTree,
    Setup,
    Variables,
)
from fdgjax.methods.parts.entry import Entry
from fdgjax.utils.errors import UserError, users_program
from fdgjax.utils.variables import dtype_and_shape

ARRAYS = (jax.Array, np.ndarray, np.generic)
NUMBERS = (*ARRAYS, bool, int, float)


class Promise(NamedTuple):
    """What a function of `Method` returns, in words, and what is wrong with a result; '' for nothing."""

    words: str
    fault: Callable[[Any], str]


def kind(made: Any) -> str:
    """A result in words."""
    if isinstance(made, tuple | list):
        return f"a {type(made).__name__} of {len(made)}"
    return dtype_and_shape(made) if isinstance(made, jax.Array) else type(made).__name__


def no_pair(made: Any) -> str:
    """A pair is a plain tuple: states and messages are often named ones of two fields."""
    return "" if type(made) in (tuple, list) and len(made) == 2 else kind(made)


def no_numbers(made: Any, kinds: tuple[type, ...] = NUMBERS) -> str:
    """The first leaf that is of none of the kinds."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(made):
        if not isinstance(leaf, kinds):
            return f"{type(leaf).__name__} at {jax.tree_util.keystr(path) or 'the root'}"
    return ""


def no_pair_of_arrays(made: Any) -> str:
    """A pair whose first part has arrays alone."""
    if fault := no_pair(made) or no_numbers(made):
        return fault
    return f"{fault} of the first" if (fault := no_numbers(made[0], ARRAYS)) else ""


def no_variables(made: Any) -> str:
    """A model's variables are collections by name, `params` among them."""
    if not isinstance(made, Mapping):
        return kind(made)
    return "" if "params" in made else f"the collections {', '.join(map(str, made)) or 'none'}"


def no_stack(made: Any) -> str:
    """The variables of several models have one axis in common, the first."""
    if fault := no_variables(made):
        return fault
    sizes = sorted({np.shape(leaf)[:1] for leaf in jax.tree.leaves(made)})
    return "" if len(sizes) == 1 and sizes[0] and sizes[0][0] > 0 else f"leaves whose first axes are {sizes}"


def no_prepared(made: Any) -> str:
    """`Prepared`, with labels to train on or without."""
    if not isinstance(made, Prepared):
        return kind(made)
    return "" if isinstance(made.pseudo_labels, PseudoLabels | None) else f"pseudo-labels {kind(made.pseudo_labels)}"


VARIABLES = "a model's variables, {'params': ..., ...}"
STACKED = "models' variables, {'params': ..., ...}, each leaf [models, ...]"
PROMISES: Mapping[str, Promise] = {
    "init": Promise("the pair (server, clients) of pytrees of arrays", lambda made: no_pair(made) or no_numbers(made)),
    "send": Promise("a pytree of arrays", no_numbers),
    "start": Promise(VARIABLES, no_variables),
    "finish": Promise("the pair (message, the client's new row) of pytrees of arrays", no_pair_of_arrays),
    "aggregate": Promise(
        "the pair (aggregate, coefficients) of pytrees of arrays, as of its rule", lambda m: no_pair(m) or no_numbers(m)
    ),
    "update": Promise("the pair (server, clients)", no_pair),
    "predict": Promise(VARIABLES, no_variables),
    "unseen": Promise(STACKED, no_stack),
    "prepare": Promise("fdgjax.contract.Prepared(pseudo_labels, aux)", no_prepared),
    "trained": Promise(VARIABLES, no_variables),
}
"""What is promised by the functions of `Method` whose results are checked here; the engine checks the others'."""
UNCHECKED = ("label", "weights", "adapt", "order")


def guarded_build(entry: Entry, setup: Setup, h: Any) -> Method:
    """`Entry.build` of a user's method, whose functions are `guarded`.

    Raises:
      UserError: its `make` fails, or what it returns has something else in the place of a function; or like `guarded`.
    """
    what = f"method '{entry.name}'"
    with users_program(what, "the function of its Entry, (setup, hyperparameters) -> fdgjax.contract.Method"):
        method = entry.build(setup, h)
    optional = {name for name, default in Method._field_defaults.items() if default is None}
    functions = {name: getattr(method, name) for name in (*PROMISES, *UNCHECKED)}
    for name, function in functions.items():
        if not (callable(function) or (function is None and name in optional)):
            raise UserError(f"{what} got {kind(function)} as its {name}; expected a function")
    if not (hasattr(method.optimizer, "init") and hasattr(method.optimizer, "update")):
        raise UserError(
            f"{what} got {kind(method.optimizer)} as its optimizer; expected one of optax's, such as optax.sgd(0.1)"
        )
    checked: dict[str, Any] = {
        name: guarded(what, name, function) for name, function in functions.items() if function is not None
    }
    return method._replace(**checked, objective=guarded_objective(what, setup.model, method.objective))


def guarded(what: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose result is checked as `PROMISES` has it.

    Raises:
      UserError: it fails, or returns something else; when it is called.
    """
    promise = PROMISES.get(name, Promise("what fdgjax.contract says of it", lambda made: ""))

    def called(*args: Any, **options: Any) -> Any:
        with users_program(f"{name} of {what}", promise.words):
            made = function(*args, **options)
        if fault := promise.fault(made):
            raise UserError(f"{name} of {what} made {fault}; expected {promise.words}")
        return made

    return called


def guarded_objective(what: str, model: Model, objective: Objective) -> Objective:
    """The objective, whose result is checked; raises like `guarded`.

    The collections that the model changed in training, such as BatchNorm's statistics, may not be left out without a
    word: they would stay as they were drawn, and the model would be right in training alone.
    """
    words = "the pair (loss, changed collections), the latter as model.apply returned them"

    def called(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        with users_program(f"the objective of {what}", words):
            made: Any = objective(variables, batch, key, context)
        fault = no_pair(made) or loss_fault(made[0]) or changed_fault(made[1], variables)
        if not fault and not made[1] and len(variables) > 1:
            changed = jax.eval_shape(lambda v, x, k: model.apply(v, x, True, k)[1], variables, batch.inputs, key)
            fault = f"no changed collections, and the model changed {', '.join(changed)}" if changed else ""
        if fault:
            raise UserError(f"the objective of {what} made {fault}; expected {words}")
        return made[0], made[1]

    return called


def loss_fault(loss: PyTree) -> str:
    """The loss is one number with a fraction."""
    right = np.shape(loss) == () and jnp.issubdtype(jnp.result_type(loss), jnp.floating)
    return "" if right else f"the loss {kind(loss)}"


def changed_fault(changed: PyTree, variables: Variables) -> str:
    """Changed are collections that the model has."""
    if not isinstance(changed, Mapping):
        return f"the changed collections {kind(changed)}"
    unknown = [str(name) for name in changed if name not in variables]
    return f"the collection {unknown[0]}, which the model does not have" if unknown else ""
