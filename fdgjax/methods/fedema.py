"""FedEMA: BYOL at each client, each round from a mixture of the client's last model and the global one.

    theta_i <- mu_i theta_i + (1 - mu_i) theta,    mu_i = min(lambda_i |theta - theta_i|, 1)
    theta_i <- local epochs of BYOL from there;    theta <- sum_i p_i theta_i

with theta_i as the client sent it last, and |.| over encoder and projector. The more the two models differ, the more of
its own model the client keeps. lambda_i = tau / |theta - theta_i| is measured once, when a client takes part for the
second time; the first time it starts from theta. The predictor is mixed by the same mu_i and averaged, too; BatchNorm's
statistics are the received ones. The target stays at the client.

Zhuang, Wen and Zhang, "Divergence-aware federated self-supervised learning", ICLR 2022, section 4.2 and Algorithm 1;
a baseline of FedGaLA (Table 1).
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Context, Method, PyTree, Setup, Trained, Variables
from fdgjax.methods.fedsimclr import BySGD, all_but_collections, fedsimclr, of_predictor
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, extend
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import PREDICTOR
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.methods.parts.setting_presets import UNLABELLED
from fdgjax.objectives.two_views import of_model
from fdgjax.utils.variables import flatten


@dataclasses.dataclass(frozen=True)
class FedEMA(BySGD):
    """`BySGD` with BYOL's loss.

    tau: the share mu of its own model that a client keeps when lambda is measured.
    """

    part: str = hyper("byol", search=("byol", "simclr", "moco", "simsiam"), source="Zhuang et al., section 4.2")
    tau: float = hyper(0.7, most=1, search=(0.5, 0.7, 1.0), source="Zhuang et al., section 4.2")


class EMAState(NamedTuple):
    """What a client's row holds.

    params: those it sent last. scale: lambda, 0 before it is measured. rounds: how many it took part in, int32.
    """

    params: PyTree
    scale: jax.Array
    rounds: jax.Array


def fedema(setup: Setup, h: FedEMA) -> Method:
    """Self-supervised clients that start from a mixture of their own model and the global one."""

    def begin(fresh: Fresh) -> EMAState:
        clients = len(fresh.federation.ids)
        return EMAState(fresh.models()["params"], jnp.zeros(clients), jnp.zeros(clients, jnp.int32))

    def after(context: Context, trained: Trained) -> EMAState:
        past = context.client.more
        return EMAState(trained.variables["params"], scale_of(context.sent["params"], past, h.tau), past.rounds + 1)

    base = extend(fedsimclr(setup, h, label=all_but_collections), row=RowExtension(begin, after))

    def start(sent: Variables, client: Extended) -> Variables:
        own, params = client.more.params, sent["params"]
        share = jnp.minimum(scale_of(params, client.more, h.tau) * encoder_distance(params, own), 1)
        mixed = jax.tree.map(lambda ours, theirs: share * ours + (1 - share) * theirs, own, params)
        return base.start({**sent, "params": mixed}, client)

    def predict(server: ServerState, client: Extended) -> Variables:
        return of_model(start(base.send(server, client), client))

    return base._replace(start=start, predict=predict)


def encoder_distance(left: PyTree, right: PyTree) -> jax.Array:
    """The norm of the difference of two models' parameters, without their predictors."""
    apart = flatten(optax.tree.sub(left, right))
    return optax.tree.norm({path: leaf for path, leaf in apart.items() if not of_predictor(path)})


def scale_of(params: PyTree, past: EMAState, tau: float) -> jax.Array:
    """lambda: the measured value, else measured now if the client has taken part once, else 0."""
    apart = encoder_distance(params, past.params)
    now = jnp.where((past.rounds > 0) & (apart > 0), tau / jnp.where(apart > 0, apart, 1), 0)
    return jnp.where(past.scale > 0, past.scale, now)


ENTRY = Entry(
    "fedema",
    FedEMA,
    fedema,
    "no labels: BYOL from a mix of the client's and the global model (Zhuang et al., 2022)",
    title="FedEMA",
    head="prediction",
    unlabelled=True,
    pooled=lambda h: h.pooled,
    presets=UNLABELLED,
    needs=(PREDICTOR,),
)
