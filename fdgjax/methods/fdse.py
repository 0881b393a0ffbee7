"""FDSE: a shared domain-agnostic feature extractor (DFE) and personal domain-specific skew erasers (DSE).

    L_k = cross-entropy + lambda sum_l w_l |running statistics of DSE block l - those received|^2      C, equations 4-7
    shared:    theta <- theta + mean_k |d_k| * (min-norm point of the d_k / |d_k|)    leaf by leaf      A, equation 8
    personal:  [theta_1, ..., theta_N] <- softmax(cosines / tau) [theta_1, ..., theta_N]  leaf by leaf  B, equation 9

`dfe`, BN_dfe and everything outside of DSE blocks are shared, their statistics by the weighted mean; `dse` and BN_dse's
parameters are personal; BN_dse's statistics never leave the client.

Wang et al., "Federated learning with domain shift eraser", 2025, Algorithm 1; A, B and C as in Table 3.

Unseen domain: one model with the mean of what clients keep that have trained, or each client's; its DSE modules are
fitted to the domain by the consistency loss alone (Algorithm 3). Ambiguities and the official code: docs/deviations.md.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation import attention, mean, min_norm, partition
from fdgjax.contract import AdaptFn, Batch, Context, Method, ObjectiveResult, PyTree, Rule, Setup, Unlabelled, Variables
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.during_training import during_training
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import When, hyper
from fdgjax.methods.parts.optimizers import trained_where
from fdgjax.methods.parts.requirements import SKEW_ERASERS
from fdgjax.methods.parts.server_state import WEIGHTINGS
from fdgjax.methods.parts.sharing import Personalise, keep_personal, of_trained
from fdgjax.models.depth import depth_order
from fdgjax.objectives import consistency_loss, consistent, cross_entropy, statistics_only
from fdgjax.objectives.consistency import CARRIED
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import merge, module_of, select

OFFICIAL = "FDSE's official settings for PACS"


@dataclasses.dataclass(frozen=True)
class FDSE(FedAvg):
    """FDSE's hyperparameters.

    consensus: A, the rule for shared parameters: `min_norm`, or `mean` without it.
    personalisation: B, for personal parameters: `attention`, or `own` without it (clients keep theirs), or `mean`.
    consistency: C, the term of statistics: `paper` (equation 6), `official` (`official_term`) or `none`.
    strength: lambda, the weight of C. beta: how the layers' weights in C grow with depth. tau: temperature of the
      attention.
    first_round: the first round (from 0) with C; the official code begins with 1.
    adaptation_epochs, adaptation_learning_rate: epochs and learning rate of Algorithm 3, which gives neither; its loss
      is that of equation 6. With 0 epochs nothing is adapted.
    """

    client_optimizer: str = hyper("sgd", examples=True, search=("sgd", "adam"), source="FDSE, Algorithm 1")
    client_learning_rate: float = hyper(0.05, above=0, search=(0.001, 0.01, 0.05, 0.1, 0.5), source=OFFICIAL)
    client_weight_decay: float = hyper(1e-3, search=(1e-3, 1e-4), source=OFFICIAL)
    client_learning_rate_decay: float = hyper(
        0.998, above=0, search=(0.998, 0.9998), source="FDSE, A7.4; official: 0.9998"
    )
    client_clip: float = hyper(10.0, search=(0.0, 10.0), source="FDSE, A7.4")
    weighting: str = hyper("uniform", search=("uniform", "samples"), source="FDSE, equation 8")
    unseen: str = hyper("mean", search=("each", "mean"), source="one model in FDSE, Algorithm 3")
    consensus: str = hyper("min_norm", search=("min_norm", "mean"), source="FDSE, equation 8 and Table 3 (A)")
    personalisation: str = hyper(
        "attention", search=("attention", "own", "mean"), source="FDSE, equation 9 and Table 3 (B)"
    )
    consistency: str = hyper("paper", search=("paper", "official", "none"), source="FDSE, equation 6 and Table 3 (C)")
    strength: float = hyper(
        0.5, search=(0.01, 0.1, 0.5, 1.0), source=OFFICIAL, when=When(lambda h: h.consistency != "none")
    )
    beta: float = hyper(0.001, search=(0.001, 0.01, 0.1), source="FDSE, A7.4")
    tau: float = hyper(
        0.5,
        above=0,
        search=(0.001, 0.01, 0.1, 0.5),
        source=OFFICIAL,
        when=When(lambda h: h.personalisation == "attention"),
    )
    first_round: int = hyper(0, search=(0, 1), source="FDSE, Algorithm 1; official: 1")
    adaptation_epochs: int = hyper(5, search=(0, 1, 5), source="several (FDSE, A7.5)")
    adaptation_learning_rate: float = hyper(
        0.05, search=(0.001, 0.01, 0.05, 0.1), source="not stated", when=When(lambda h: h.adaptation_epochs > 0)
    )


CONSENSUS: Mapping[str, Rule] = {"min_norm": min_norm, "mean": mean}


def mean_of_all(personal: PyTree, weights: jax.Array) -> tuple[PyTree, PyTree]:
    """Every client receives the weighted mean."""
    average, shares = mean(personal, weights)
    return jax.tree.map(lambda leaf, one: jnp.broadcast_to(one, leaf.shape), personal, average), shares


def label(path: str) -> str:
    """The label of a variable, by the last name of its module's path."""
    if module_of(path).rpartition("/")[2] not in ("dse", "bn_dse"):
        return "shared"
    return "personal" if path.startswith("params/") else "local"


def fdse(setup: Setup, h: FDSE) -> Method:
    """FedAvg with FDSE's labels, rules and regulariser.

    Raises:
      UserError: an unknown value in `h`.
    """
    layers = [layer for layer in depth_order(setup.model.init) if layer.rpartition("/")[2] == "bn_dfe"]
    personalisations: Mapping[str, Personalise] = {
        "attention": partial(attention, tau=h.tau),
        "own": keep_personal,
        "mean": mean_of_all,
    }
    objective = cross_entropy(setup.model)
    if h.consistency != "none":
        objective = consistent(
            objective, layers, strength=h.strength, beta=h.beta, term=h.consistency, first_round=h.first_round
        )
    rules = {"params": lookup("consensus", h.consensus, CONSENSUS), "batch_stats": mean}
    method = fedavg(
        setup,
        h,
        objective=objective,
        label=label,
        rule=partition(rules, lambda updates: {kind: kind for kind in updates}),
        personalise=lookup("personalisation", h.personalisation, personalisations),
    )._replace(adapt=fit_erasers(setup, h, layers) if h.adaptation_epochs else None)
    method = during_training(method, CARRIED.get(h.consistency, {}))
    return of_trained(method, h.unseen, WEIGHTINGS["uniform"])


def fit_erasers(setup: Setup, h: FDSE, layers: Sequence[str]) -> AdaptFn:
    """Algorithm 3: the DSE modules take gradient steps on the consistency loss; BN_dse's statistics follow the domain.
    Everything shared stays fixed, BN_dfe included, which normalises by its fixed statistics."""
    forward = statistics_only(setup.model, fixed=layers)

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        _, changed = forward(variables, batch, key, context)
        return consistency_loss(changed, context.received, layers, h.beta), changed

    optimizer = trained_where(lambda path: label(f"params/{path}") == "personal", optax.sgd(h.adaptation_learning_rate))

    def adapt(variables: Variables, domain: Unlabelled) -> Variables:
        after = domain.fit(variables, objective, optimizer, h.adaptation_epochs)
        return merge(select(variables, label, "shared"), select(after, label, "personal", "local"))

    return adapt


SECOND_ROUND = {"method": {"first_round": 1}}
"""Both official programs add the consistency term from the second round on."""


def program_of_2026(strength: float, beta: float) -> dict[str, Any]:
    """The official program since January 2026 (commit c0bd90b): another block, no padding in AlexNet's last three
    convolutions, another consistency term, and lambda and beta of `config/*/fdse.yml`, which came with it."""
    method = {"consistency": "official", "first_round": 1, "strength": strength, "beta": beta, "tau": 0.5}
    return {"model": {"name": "alexnet_unpadded", "unit": "dse_official"}, "method": method}


ENTRY = Entry(
    "fdse",
    FDSE,
    fdse,
    "shared extractors by consensus, personal skew erasers by similarity (FDSE)",
    title="FDSE",
    unit="dse",
    needs=(SKEW_ERASERS,),
    presets={
        **dict.fromkeys(("fdse_pacs", "fdse_office_caltech10", "fdse_domainnet10"), SECOND_ROUND),
        "fdse_pacs_2026": program_of_2026(strength=0.5, beta=0.001),
        "fdse_office_caltech10_2026": program_of_2026(strength=0.05, beta=0.05),
    },
)
