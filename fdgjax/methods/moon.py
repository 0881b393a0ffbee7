"""MOON: FedAvg whose clients keep their features near the received model's and far from their own former model's.

    L_i(w) = CE + mu * mean -log(e^(cos(z, z_received)/T) / (e^(cos(z, z_received)/T) + e^(cos(z, z_previous)/T)))

z are the features before the last layer, `previous` the client's model after the last round it took part in.

Li, He and Song, "Model-contrastive federated learning", CVPR 2021, equations 2 to 4 and Algorithm 1. With mu = 0 it is
FedAvg; so it is in the first round, when both other models are the initial one, which is also the previous model of a
client that first takes part later. The previous model stays at the client. The global model predicts for an unseen
domain.

References:
  Search range of mu, and T: FDSE, A7.4.
"""

import dataclasses

from fdgjax.contract import Method, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import RowExtension, extend
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import FEATURES
from fdgjax.objectives import model_contrastive


@dataclasses.dataclass(frozen=True)
class Moon(FedAvg):
    """FedAvg's hyperparameters and the contrast's.

    mu: strength of the contrast. temperature: T of the contrast.
    """

    mu: float = hyper(1.0, search=(0.1, 1.0, 5.0, 10.0), source="FDSE, A7.4; Li et al., section 4.1")
    temperature: float = hyper(0.5, above=0, search=(0.1, 0.5, 1.0), source="FDSE, A7.4: 0.5; Li et al., section 4.6")


def moon(setup: Setup, h: Moon) -> Method:
    """FedAvg with a model-contrastive loss; a client's row holds its previous model."""
    extended = extend(
        fedavg(setup, h), row=RowExtension(lambda fresh: fresh.models(), lambda context, trained: trained.variables)
    )
    objective = model_contrastive(setup.model, h.mu, h.temperature, lambda context: context.client.more)
    return extended._replace(objective=objective)


ENTRY = Entry(
    "moon", Moon, moon, "features contrasted with former models (Li et al., 2021)", title="MOON", needs=(FEATURES,)
)
