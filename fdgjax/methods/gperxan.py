"""gPerXAN: networks whose norms are a learned mixture of BatchNorm and InstanceNorm; clients keep their BatchNorms, and
the received classifier guides their features.

    norm(x) = a BN(x) + (1 - a) IN(x),    (a, 1 - a) = softmax(s_bn, s_in)          in every unit of the network
    L_i     = CE(h(f(x)), y) + lambda CE(h_g(f(x)), y)       f the features, h the last layer, h_g as it was received
    label(BN) = local, everything else shared

h_g is fixed, so that its term trains the features alone. With lambda = 0 it is FedBN on the same network, without
adaptation. `fdgjax.models.assembled_norm` has the norms. One model with the mean of the clients' BatchNorms, weighted
as the updates are, predicts for an unseen domain, as in the official code, where it is that of the round's clients.

Le, Ho, Do, Le-Phuoc and Wong, "Efficiently assemble normalization layers and regularization for federated domain
generalization", CVPR 2024, and its official code.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax

from fdgjax.contract import Batch, Context, Method, Model, Objective, ObjectiveResult, Setup, Variables
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import ASSEMBLED_NORM, FEATURES, last_layer
from fdgjax.methods.parts.sharing import of_trained
from fdgjax.objectives import mean_cross_entropy
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten, module_of, norm_paths

OWN_SCORES: Mapping[str, Callable[[str], bool]] = {
    "shared": lambda path: False,
    "official": lambda path: path.endswith("/score_bn"),
}
"""Which of a norm's scores stay with the clients, besides BatchNorm."""


@dataclasses.dataclass(frozen=True)
class GPerXAN(FedAvg):
    """FedAvg's hyperparameters, and the guiding term's.

    guidance: lambda. scores: whether s_bn and s_in are both `shared`, or s_bn stays local as in the `official` code.
    """

    unseen: str = hyper("mean", search=("mean", "each"), source="Le et al., official code: mean")
    guidance: float = hyper(0.5, search=(0.0, 0.1, 0.5, 1.0), source="Le et al., official code: 0.5")
    scores: str = hyper("shared", search=tuple(OWN_SCORES), source="docs/deviations.md")


def gperxan(setup: Setup, h: GPerXAN) -> Method:
    """FedAvg with local BatchNorms and a guiding classifier.

    Raises:
      UserError: an unknown value in `h`.
    """
    norms = norm_paths(setup.model.shapes())
    own_score = lookup("scores", h.scores, OWN_SCORES)
    method = fedavg(
        setup,
        h,
        objective=guided(setup.model, h.guidance),
        label=lambda path: "local" if module_of(path) in norms or own_score(path) else "shared",
    )
    return of_trained(method, h.unseen, method.weights)


def guided(model: Model, guidance: float) -> Objective:
    """Cross-entropy, and that of the received last layer on the same features."""
    kernel = last_layer(model)
    bias = kernel.replace("/kernel", "/bias")

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        output, changed = model.apply(variables, batch.inputs, True, key)
        loss = mean_cross_entropy(output.logits, batch)
        if guidance:
            received = flatten(context.received)
            logits = output.features @ received[kernel]
            logits = logits + received[bias][None] if bias in received else logits
            loss += guidance * mean_cross_entropy(logits, batch)
        return loss, changed

    return objective


ENTRY = Entry(
    "gperxan",
    GPerXAN,
    gperxan,
    "BatchNorm and InstanceNorm assembled, a guiding classifier (Le et al., 2024)",
    title="gPerXAN",
    unit="assembled",
    needs=(ASSEMBLED_NORM, FEATURES),
)
