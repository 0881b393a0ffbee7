"""Ditto: FedAvg's global model, and for each client a personal model regularised towards it.

    w_i <- local epochs of L_i(w) from w;                      w <- w + sum_i p_i (w_i - w)
    v_i <- local epochs of L_i(v) + mu/2 |v - w|^2 from v_i    (w as it was received)

Both train on the same minibatches and dropout draws, each with its own optimiser; the recorded loss is the sum of both.
Only the global model is sent, and its BatchNorm statistics are averaged; the proximal term is over parameters. The
personal model predicts for its client, the global one or each client's personal one for an unseen domain. The global
model is FedAvg's; with mu = 0 the personal models are Local's.

Li et al., "Ditto: Fair and robust federated learning through personalization", 2021, Algorithm 1. Search range and
default of mu: FDSE, A7.4 and its official settings for PACS.
"""

import dataclasses
from functools import partial

import jax
import optax

from fdgjax.contract import Batch, Context, Method, Objective, ObjectiveResult, Setup, Variables
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.optimizers import client_optimizer
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.methods.parts.setting_presets import official_fdse
from fdgjax.methods.parts.sharing import ClientVariables
from fdgjax.objectives import cross_entropy, proximal
from fdgjax.utils.registry import lookup


@dataclasses.dataclass(frozen=True)
class Ditto(FedAvg):
    """FedAvg's hyperparameters and those of the personal models.

    mu: strength of the proximal term.
    unseen: the `global` model predicts for an unseen domain, or `each` client's personal one (the accuracies are
      averaged).
    """

    mu: float = hyper(1e-4, search=(1e-4, 1e-3, 1e-2, 1e-1, 1.0), source="FDSE, A7.4 and official code")
    unseen: str = hyper("global", search=("global", "each"), source="docs/deviations.md")


def ditto(setup: Setup, h: Ditto) -> Method:
    """FedAvg over two models: a shared global one and a local personal one."""
    plain = cross_entropy(setup.model)

    def init_both(key: jax.Array) -> Variables:
        model = setup.model.init(key)
        return two_models(model, model)

    twin = setup.model._replace(init=init_both)
    objective = both_losses(plain, proximal(plain, h.mu))
    inner = dataclasses.replace(h, unseen="each")
    base = fedavg(setup._replace(model=twin), inner, objective=objective, label=global_shared)

    def predict(server: ServerState, client: ClientVariables) -> Variables:
        return one_model(base.predict(server, client), "personal")

    def predict_unseen(server: ServerState, clients: ClientVariables) -> Variables:
        del clients
        return jax.tree.map(lambda leaf: leaf[None], one_model(server.variables, "global"))

    unseen = {"global": predict_unseen, "each": jax.vmap(predict, in_axes=(None, 0))}
    # One optimiser for each, so that gradients are clipped model by model.
    optimizer = optax.partition(
        {name: client_optimizer(h, setup.rounds) for name in ("global", "personal")},
        {name: name for name in ("global", "personal")},
    )
    return base._replace(
        optimizer=optimizer,
        predict=predict,
        unseen=lookup("unseen", h.unseen, unseen),
        trained=partial(one_model, name="personal"),
    )


def global_shared(path: str) -> str:
    """Labels of variables, for paths such as `params/global/head/kernel` and `params/personal/head/kernel`."""
    return "shared" if path.split("/")[1] == "global" else "local"


def two_models(global_model: Variables, personal: Variables) -> Variables:
    """Two models as one tree of variables, `{"params": {"global": ..., "personal": ...}, ...}`."""
    return {name: {"global": global_model[name], "personal": personal[name]} for name in global_model}


def one_model(variables: Variables, name: str) -> Variables:
    """One of the two models."""
    return {collection: tree[name] for collection, tree in variables.items()}


def both_losses(for_global: Objective, for_personal: Objective) -> Objective:
    """The sum of both models' objectives on a batch; for both, the received model is the global one."""

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        near = context._replace(received=one_model(context.received, "global"))
        loss, changed = for_global(one_model(variables, "global"), batch, key, near)
        own, own_changed = for_personal(one_model(variables, "personal"), batch, key, near)
        return loss + own, two_models(changed, own_changed)

    return objective


ENTRY = Entry(
    "ditto",
    Ditto,
    ditto,
    "FedAvg, and a personal model near it for each client (Li et al., 2021)",
    title="Ditto",
    presets=official_fdse(pacs={"mu": 1e-4, "weighting": "uniform"}, office={"mu": 0.01, "weighting": "uniform"}),
)
