"""FedSR: FedAvg with a random representation, regularised in L2 norm (L2R) and conditional mutual information (CMI).

    z ~ p(z|x) = N(mu(x), diag(sigma(x)^2)),    logits = classifier(z)
    L = CE + alpha mean |z|^2 + beta mean KL(N(C mu, C^2 diag(sigma^2)) || N(r_mu[y], diag(r_sigma[y]^2)))

The network's last layer gives mu and sigma (softplus), and a linear layer classifies z (`fdgjax.models.heads`). r_mu,
r_sigma (softplus) and C are parameters, trained and averaged like the rest; C is only in the official code.
Predictions, for clients and for an unseen domain, use z = mu; the official code averages the probabilities of 20 draws.
With alpha = beta = 0 it is FedAvg on the same network.

Nguyen, Torr and Lim, "FedSR: A simple and effective domain generalization method for federated learning", NeurIPS 2022,
equations of L2R and CMI, and its official code, which uses |z| instead of |z|^2 and never averages r_mu, r_sigma and C.

References:
  Defaults and search ranges: hFedF v2, Table 10; beta: Nguyen et al., official code.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, LabelFn, Method, Model, Objective, ObjectiveResult, Setup, Variables
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import TABLE_10, hyper
from fdgjax.methods.parts.requirements import CLASSES, RANDOM_REPRESENTATION
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.methods.parts.setting_presets import BATCH_STATISTICS
from fdgjax.methods.parts.sharing import ClientVariables, everything_shared
from fdgjax.objectives import gaussian_divergence, mean_cross_entropy, mean_length, mean_squared_length
from fdgjax.objectives.cross_entropy import masked_mean
from fdgjax.utils.registry import lookup

LENGTHS: Mapping[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "squared": mean_squared_length,
    "plain": mean_length,
}

OWN = ("params/gaussian/reference_mean", "params/gaussian/reference_deviation", "params/gaussian/scale")
"""The parameters that predictions do not use: r_mu, r_sigma before its softplus, and C."""

REFERENCES: Mapping[str, LabelFn] = {
    "shared": everything_shared,
    "local": lambda path: "local" if path in OWN else "shared",
}
"""The labels of variables."""


@dataclasses.dataclass(frozen=True)
class FedSR(FedAvg):
    """FedAvg's hyperparameters, and the regularisers.

    l2r: alpha, weight of L2R. cmi: beta, weight of CMI. length: |z| of L2R, `squared` or `plain`.
    references: whether r_mu, r_sigma and C are `shared` or stay `local` (predictions do not use them).
    """

    client_weight_decay: float = hyper(1e-5, search=(1e-3, 1e-4, 1e-5), source=TABLE_10)
    l2r: float = hyper(1e-1, search=(1e-1, 1e-2, 1e-3), source=TABLE_10)
    cmi: float = hyper(5e-4, search=(0.0, 5e-4, 5e-3), source="Nguyen et al., official code: 5e-4")
    length: str = hyper("squared", search=tuple(LENGTHS), source="Nguyen et al.; official code: plain")
    references: str = hyper("shared", search=tuple(REFERENCES), source="docs/deviations.md")


def fedsr(setup: Setup, h: FedSR) -> Method:
    """FedAvg with FedSR's regularisers.

    Raises:
      UserError: an unknown value in `h`.
    """
    label = lookup("references", h.references, REFERENCES)
    base = fedavg(setup, h, objective=simple_representation(setup.model, h), label=label)

    def unseen(server: ServerState, clients: ClientVariables) -> Variables:
        return base.unseen(server, jax.tree.map(lambda leaf: leaf[:1], clients))

    # References that stay with the clients have no effect on predictions, so that there is one model for all.
    return base._replace(unseen=unseen, trained=None)


def simple_representation(model: Model, h: FedSR) -> Objective:
    """Cross-entropy with both regularisers."""
    length = lookup("length", h.length, LENGTHS)

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        output, changed = model.apply(variables, batch.inputs, True, key)
        loss = mean_cross_entropy(output.logits, batch)
        if h.l2r:
            loss += h.l2r * length(output.features, batch.mask)
        if h.cmi:
            divergences = from_references(variables["params"]["gaussian"], output.extra, batch.labels)
            loss += h.cmi * masked_mean(divergences, batch.mask * batch.label_weight)
        return loss, changed

    return objective


def from_references(
    references: Mapping[str, jax.Array], representation: Mapping[str, jax.Array], labels: jax.Array
) -> jax.Array:
    """The KL divergence of each sample's distribution, scaled by C, from its class's reference, `[batch]`."""
    # The sign of C affects the means only: deviations have no sign.
    scale = references["scale"]
    mean, deviation = scale * representation["mean"], jnp.abs(scale) * representation["deviation"]
    means, deviations = references["reference_mean"], jax.nn.softplus(references["reference_deviation"])
    return gaussian_divergence(mean, deviation, means[labels], deviations[labels])


ENTRY = Entry(
    "fedsr",
    FedSR,
    fedsr,
    "simple random representations (Nguyen et al., 2022)",
    title="FedSR",
    head="gaussian",
    presets=BATCH_STATISTICS,
    needs=(CLASSES, RANDOM_REPRESENTATION),
)
