"""The variables that clients keep, and those of them that predict for an unseen domain."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.weighting import normalise_weights, weighted_sum
from fdgjax.contract import Context, LabelFn, Method, Model, PyTree, Trained, Variables
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, extend
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import label_table

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
server trains and has its own. See `of_trained` for the mean under partial participation."""


class Share(NamedTuple):
    """A client's weight in the mean of what clients keep, and whether it has trained, `[clients]` each."""

    weight: jax.Array
    trained: jax.Array


def of_trained(base: Method, unseen: str, weighting: Callable[[jax.Array], jax.Array]) -> Method:
    """The base method whose `mean` for an unseen domain is over the clients that have trained in some round: others
    still keep initial values. Before the first round it is over all.

        u = sum_i p_i u_i / sum_i p_i    over these clients, u_i what client i keeps

    Args:
      base: the method; its `unseen` is given one row.
      unseen: the entry of `UNSEEN`; for others than `mean` the base method is returned.
      weighting: p of the numbers of samples, an entry of `WEIGHTINGS`.
    """
    if unseen != "mean":
        return base

    def begin(fresh: Fresh) -> Share:
        counts = fresh.federation.train.length
        return Share(weighting(counts), jnp.zeros(len(counts), bool))

    def after(context: Context, trained: Trained) -> Share:
        del trained
        before: Share = context.client.more
        return before._replace(trained=jnp.ones_like(before.trained))

    def mean_model(server: PyTree, clients: Extended) -> Variables:
        weight, trained = clients.more
        counted = jnp.where(trained | ~jnp.any(trained), weight, 0)
        kept = weighted_sum(clients.base, normalise_weights(counted, len(counted)))
        return base.unseen(server, jax.tree.map(lambda leaf: leaf[None], kept))

    return extend(base, row=RowExtension(begin, after))._replace(unseen=mean_model)


def everything_shared(path: str) -> str:
    """FedAvg's labels: one value for all."""
    del path
    return "shared"


def keep_personal(personal: PyTree, weights: jax.Array) -> tuple[PyTree, PyTree]:
    """Every client keeps its own."""
    del weights
    return personal, {}


def has_own(model: Model, label: LabelFn) -> bool:
    """Whether clients have variables that others do not have; raises like `label_table`."""
    return any(word != "shared" for word in label_table(model.shapes(), label).values())


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
