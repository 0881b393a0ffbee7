"""The variables that clients keep, and those of them that predict for an unseen domain."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.contract import LabelFn, Model, PyTree, Variables
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import any_key
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten

Personalise = Callable[[PyTree, jax.Array], tuple[PyTree, PyTree]]
"""Mixes personal variables: `(stacked [clients, ...], weights [clients]) -> (stacked, coefficients)`."""


class ClientVariables(NamedTuple):
    """A client's row: its `personal` variables, which the server mixes, and the `local` ones, which it never sees."""

    personal: Variables
    local: Variables


UNSEEN: Mapping[str, Callable[[PyTree], PyTree]] = {
    "each": lambda kept: kept,
    "mean": lambda kept: jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0, keepdims=True), kept),
    "server": lambda kept: jax.tree.map(lambda leaf: leaf[:0], kept),
}
"""The clients' variables that predict for an unseen domain, `[models, ...]`: each client's, their mean, or none, if the
server trains and has its own."""


def everything_shared(path: str) -> str:
    """FedAvg's labels: one value for all."""
    del path
    return "shared"


def keep_personal(personal: PyTree, weights: jax.Array) -> tuple[PyTree, PyTree]:
    """Every client keeps its own."""
    del weights
    return personal, {}


def has_own(model: Model, label: LabelFn) -> bool:
    """Whether clients have variables that others do not have."""
    shapes = jax.eval_shape(model.init, any_key())
    return any(label(path) != "shared" for path in flatten(shapes))


def unseen_rule(name: str, *, own: bool, server_trains: bool) -> Callable[[PyTree], PyTree]:
    """The entry of `UNSEEN` by its name.

    Args:
      name: the entry.
      own: whether clients have variables of their own.
      server_trains: whether the server has its own values of these, too.

    Raises:
      UserError: no such entry, or `server` although the server has no complete model.
    """
    if name == "server" and own and not server_trains:
        raise UserError(
            "method.unseen got 'server', but the server does not train and lacks what clients keep; expected each or "
            "mean"
        )
    return lookup("unseen", name, UNSEEN)
