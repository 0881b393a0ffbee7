"""SSFL: a server with labels, and clients without, which learn from pseudo-labels that the server's model generates.

    w <- local epochs at the server from w, on its labelled data
    y~_i = guess(w, x_i);   w_i <- local epochs at client i from w, on (x_i, y~_i);   w <- sum_i p_i w_i

UAP's baseline (section 5, where the paper refers to SemiFL): UAP with cross-entropy alone. Pseudo-labels are generated
anew in every round. BatchNorm layers are not averaged: each client keeps its own, as in FedBN, and the server its own,
which complete the global model (`unseen="server"`).

Ahmed et al., "Unified alignment protocol: making sense of the unlabeled data in new domains", sections 3.1, 4.2 and 9.
"""

import dataclasses
from collections.abc import Callable, Mapping

from fdgjax.contract import Context, Method, Model, Objective, Prepared, Samples, Setup, Variables
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import SCHEDULES, hyper
from fdgjax.methods.parts.optimizers import client_optimizer
from fdgjax.methods.parts.pseudo_labels import LABELLERS, outputs_for_all
from fdgjax.methods.parts.requirements import FEATURES
from fdgjax.methods.parts.server_state import WEIGHTINGS, make_server_training
from fdgjax.methods.parts.setting_presets import SERVED
from fdgjax.methods.parts.sharing import everything_shared, of_trained
from fdgjax.objectives import cross_entropy
from fdgjax.utils.random import class_aware
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import module_of, norm_paths

GUESSERS: Mapping[str, Callable[[Context], Variables]] = {
    "server": lambda context: context.sent,
    "client": lambda context: context.received,
}
"""The owner of the BatchNorm layers in the model that generates pseudo-labels."""

NORMS: Mapping[str, str] = {"kept": "local", "averaged": "shared"}
"""The label of BatchNorm layers."""


@dataclasses.dataclass(frozen=True)
class LabelledServer(FedAvg):
    """FedAvg's hyperparameters, with UAP's training, for a server that trains and clients without labels.

    unseen: whose BatchNorm layers complete the global model: the `server`'s, the `mean` of those of all clients that
      have trained, or `each` client's.
    batch_norm: `kept` at clients and server, or `averaged` with everything else.
    class_aware: whether the server's minibatches are class-balanced.
    """

    client_optimizer: str = hyper("sgd", examples=True, search=("sgd", "adam"), source="UAP, section 5")
    client_learning_rate: float = hyper(0.002, above=0, search=(0.1, 0.01, 0.002), source="UAP, section 5")
    client_weight_decay: float = hyper(0.0, search=(0.0, 5e-4), source="UAP names none")
    client_schedule: str = hyper("cosine", search=tuple(SCHEDULES), source="UAP, section 5")
    unseen: str = hyper("server", search=("server", "mean", "each"), source="docs/deviations.md")
    batch_norm: str = hyper("kept", search=tuple(NORMS), source="UAP, section 9: skipped, as in FedBN")
    class_aware: bool = hyper(True, search=(True, False), source="UAP, section 4.1: images of each class of a subset")


@dataclasses.dataclass(frozen=True)
class SSFL(LabelledServer):
    """How pseudo-labels are generated.

    guess: `centroids` (nearest class centroid, in cosine) or `argmax`. guesser: the model that generates
      pseudo-labels, the `server`'s or the `client`'s, with its own BatchNorm layers.
    """

    guess: str = hyper("centroids", search=tuple(LABELLERS), source="UAP, section 4.2")
    guesser: str = hyper("server", search=tuple(GUESSERS), source="UAP, section 4.2: the server model")


def ssfl(setup: Setup, h: SSFL, *, server: Objective | None = None, client: Objective | None = None) -> Method:
    """A labelled server and clients on pseudo-labels; `server` and `client` as for `fedavg_with_server`.

    Raises:
      UserError: an unknown value in `h`.
    """
    base = fedavg_with_server(setup, h, server=server, client=client)
    return base._replace(prepare=assign_labels(setup.model, h))


def fedavg_with_server(
    setup: Setup,
    h: LabelledServer,
    *,
    server: Objective | None = None,
    client: Objective | None = None,
    trained_by: LabelledServer | None = None,
    last: bool = False,
) -> Method:
    """FedAvg with a server that also trains; BatchNorm layers kept or averaged.

    Args:
      setup, h: as for every method.
      server, client: the objectives; cross-entropy by default.
      trained_by: the hyperparameters of the optimiser at the server; h by default.
      last: whether the server trains after the aggregation.
    """
    norms = norm_paths(setup.model.shapes())
    of_norm = lookup("batch_norm", h.batch_norm, NORMS)
    order, optimizer = class_aware if h.class_aware else None, client_optimizer(trained_by or h, setup.rounds)
    method = fedavg(
        setup,
        h,
        objective=client,
        label=lambda path: of_norm if module_of(path) in norms else everything_shared(path),
        server_training=make_server_training(server or cross_entropy(setup.model), optimizer, order, last),
    )
    return of_trained(method, h.unseen, WEIGHTINGS["uniform"]) if method.trained else method


def assign_labels(model: Model, h: SSFL) -> Callable[[Context, Samples], Prepared]:
    """Pseudo-labels for all samples of a client, from a model's outputs in evaluation mode."""
    assign, guesser = lookup("guess", h.guess, LABELLERS), lookup("guesser", h.guesser, GUESSERS)

    def prepare(context: Context, samples: Samples) -> Prepared:
        return Prepared(assign(outputs_for_all(model, guesser(context), samples), samples.mask))

    return prepare


ENTRY = Entry(
    "ssfl",
    SSFL,
    ssfl,
    "labelled server, clients on pseudo-labels (UAP's baseline)",
    title="SSFL",
    protocol="labelled_server",
    presets=SERVED,
    needs=(FEATURES,),
)
