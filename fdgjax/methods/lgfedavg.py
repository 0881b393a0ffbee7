"""LG-FedAvg: each client has its own representation; the last layers are shared.

    label(the last `global_layers` layers) = shared, everything before them local

Both parts are trained together, by local epochs that start from the received last layers and the client's own other
layers. A layer's BatchNorm, parameters and statistics, goes with it (`fdgjax.models.depth.layers`). With all layers
global it is FedAvg, with none Local. An unseen domain is predicted by each client's model, and the accuracies are
averaged.

Liang et al., "Think locally, act globally: federated learning with local and global representations", 2020,
Algorithm 1.
"""

import dataclasses

from fdgjax.contract import Method, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import SEVERAL_CLIENTS
from fdgjax.models.depth import layers
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import module_of


@dataclasses.dataclass(frozen=True)
class LGFedAvg(FedAvg):
    """FedAvg's hyperparameters; global_layers: number of last layers that are shared."""

    global_layers: int = hyper(1, least=1, search=(1, 2, 3), source="the last layer; official code: 2 of 5 for CIFAR10")


def lgfedavg(setup: Setup, h: LGFedAvg) -> Method:
    """FedAvg of the last layers.

    Raises:
      UserError: more global layers than the model has, or a negative number.
    """
    found = layers(setup.model.init)
    if not 0 <= h.global_layers <= len(found):
        raise UserError(
            f"method.global_layers got {h.global_layers}; expected 0 to {len(found)}, the number of the model's layers"
        )
    shared = {module for layer in found[len(found) - h.global_layers :] for module in layer}
    return fedavg(setup, h, label=lambda path: "shared" if module_of(path) in shared else "local")


ENTRY = Entry(
    "lgfedavg",
    LGFedAvg,
    lgfedavg,
    "local representations, shared last layers (Liang et al., 2020)",
    title="LG-FedAvg",
    needs=(SEVERAL_CLIENTS,),
)
