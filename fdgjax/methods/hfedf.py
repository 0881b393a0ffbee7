"""hFedF: hypernetwork-based federated fusion.

    phi_i = h(theta, nu[i])                                 every client starts from its own generated model
    delta_i = phi_i - (phi_i after local epochs)            a pseudo-gradient
    g_theta_i, g_nu_i = J_i^T delta_i                       vector-Jacobian product of the hypernetwork
    g_theta, g_nu = GradAlign(g_theta_i), GradAlign(g_nu_i) softmax of the cosine with the mean gradient
    theta, nu <- Adam step;  theta, nu <- EMA after the warm-up round

hFedF v2 (hypernetwork-driven federated fusion for domain generalization), Algorithms 1, 3 and 4, Tables 8 and 10.
Without alignment and smoothing it is pFedHN with synchronous updates. Signs and initialisation: docs/deviations.md.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp

from fdgjax.aggregation import concatenated, cosine_softmax_updates
from fdgjax.aggregation.scopes import UpdatesRule
from fdgjax.contract import Method, PyTree, ServerStep, Setup
from fdgjax.methods.parts.embeddings import EmbeddingTraining, autoencoder_embeddings
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.generated_models import (
    Gradients,
    HyperNetHyper,
    HyperServer,
    HyperWeights,
    embedding_dim,
    random_embeddings,
    server_optimizer,
)
from fdgjax.methods.parts.hyper import TABLE_10, When, hyper
from fdgjax.methods.parts.hypernetwork_method import average, descend, hypernet
from fdgjax.methods.parts.setting_presets import BATCH_STATISTICS
from fdgjax.utils.registry import lookup


@dataclasses.dataclass(frozen=True)
class HFedF(HyperNetHyper):
    """hFedF's hyperparameters.

    alignment: `separate` aligns theta and nu separately (v2), `joint` both together (v1), `none` averages.
    alignment_sign: +1 favours agreement with the mean gradient (Algorithm 3), -1 is equation 9 as printed.
    alignment_temperature: temperature of the softmax, in the paper 1. alignment_scope: one softmax for the whole
      `tree`, as in the paper, or one for each `leaf`.
    ema: a, the weight of the new state in `a * new + (1 - a) * smoothed`; 1 switches smoothing off.
    warmup: the round w (from 0) whose result starts the smoothed state; rounds after it are smoothed.
    embeddings: `learned`, `random` (drawn anew every round) or `fixed` (from an autoencoder, trained by each client).
    autoencoder_epochs: number of epochs for which the autoencoder is trained.
    """

    client_weight_decay: float = hyper(1e-3, search=(1e-3, 1e-4, 1e-5), source=TABLE_10)
    alignment: str = hyper("separate", search=("separate", "joint", "none"), source="hFedF v2, Algorithm 1")
    alignment_sign: int = hyper(
        1, least=-1, most=1, search=(1, -1), source="hFedF v2, Algorithm 3; equation 9 prints -1"
    )
    alignment_temperature: float = hyper(
        1.0,
        above=0,
        search=(0.5, 1.0, 2.0),
        source="hFedF v2, equation 9",
        when=When(lambda h: h.alignment != "none"),
    )
    alignment_scope: str = hyper("tree", search=("tree", "leaf"), source="hFedF v2, equation 8")
    ema: float = hyper(0.95, most=1, search=(0.75, 0.85, 0.95), source=TABLE_10)
    warmup: int = hyper(1, search=(1, 5, 10), source="hFedF v2, Algorithm 4: a positive integer")
    embeddings: str = hyper("learned", search=("learned", "random", "fixed"), source="hFedF v2, appendix C.2-C.3")
    autoencoder_epochs: int = hyper(
        10, search=(5, 10, 20), source="not stated", when=When(lambda h: h.embeddings == "fixed")
    )


def align_separately(rule: UpdatesRule, gradients: Gradients, weights: jax.Array) -> tuple[HyperWeights, PyTree]:
    """GradAlign for theta and for nu separately (v2, Algorithm 1, line 13)."""
    theta, gamma_theta = rule(gradients.theta, weights)
    nu, gamma_nu = rule(gradients.nu, weights)
    return HyperWeights(theta, nu), {"theta": gamma_theta, "nu": gamma_nu}


def align_jointly(rule: UpdatesRule, gradients: Gradients, weights: jax.Array) -> tuple[HyperWeights, PyTree]:
    """GradAlign for {theta, nu} as one vector (v1)."""
    gradient, gamma = rule(concatenated(gradients), weights)
    return HyperWeights(*gradient), {"joint": gamma}


def align_nothing(rule: UpdatesRule, gradients: Gradients, weights: jax.Array) -> tuple[HyperWeights, PyTree]:
    """The plain mean, as without GradAlign (v2, Table 3)."""
    del rule
    return average(gradients, weights)


ALIGNMENTS: Mapping[str, Callable[[UpdatesRule, Gradients, jax.Array], tuple[HyperWeights, PyTree]]] = {
    "separate": align_separately,
    "joint": align_jointly,
    "none": align_nothing,
}


def smooth(new: HyperWeights, smoothed: HyperWeights, h: HFedF, server_step: ServerStep) -> HyperWeights:
    """Algorithm 4: `a * new + (1 - a) * smoothed` in rounds after the warm-up.

    The smoothed state is also the one that training continues from, so `smoothed` is the state before the step.
    """
    share = jnp.where(server_step.round > h.warmup, jnp.asarray(h.ema), 1.0).astype(jnp.float32)
    return jax.tree.map(lambda a, b: share * a + (1 - share) * b, new, smoothed)


def hfedf(setup: Setup, h: HFedF) -> Method:
    """hFedF for any Flax client model."""
    rule = partial(
        cosine_softmax_updates, sign=h.alignment_sign, temperature=h.alignment_temperature, scope=h.alignment_scope
    )
    grad_align = partial(lookup("alignment", h.alignment, ALIGNMENTS), rule)
    optimizer = server_optimizer(h)
    dim = embedding_dim(h, setup.clients)
    training = EmbeddingTraining(dim, h.autoencoder_epochs)
    # nu before the first round, and after a server step.
    initial, following = lookup(
        "embeddings",
        h.embeddings,
        {
            "learned": (None, lambda nu, before, key: nu),
            "random": (None, lambda nu, before, key: random_embeddings(key, before.ids, dim)),
            "fixed": (
                partial(autoencoder_embeddings, training, setup.execution),
                lambda nu, before, key: before.weights.nu,
            ),
        },
    )

    def update(server: HyperServer, gradient: HyperWeights, server_step: ServerStep) -> HyperServer:
        stepped = descend(server, gradient, optimizer)
        theta, nu = smooth(stepped.weights, server.weights, h, server_step)
        return stepped._replace(weights=HyperWeights(theta, following(nu, server, server_step.key)))

    return hypernet(setup, h, align=grad_align, update=update, embeddings=initial)


ENTRY = Entry(
    "hfedf",
    HFedF,
    hfedf,
    "hypernetwork, aligned gradients, smoothed server (hFedF v2)",
    title="hFedF",
    presets=BATCH_STATISTICS,
    pixels=lambda h: h.embeddings == "fixed",
)
