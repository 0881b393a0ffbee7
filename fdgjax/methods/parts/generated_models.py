"""Client models that a hypernetwork generates: its hyperparameters, what the server learns, and what a client keeps."""

import dataclasses
from typing import NamedTuple

import jax
import optax

from fdgjax.aggregation import Updates
from fdgjax.contract import Model, PyTree, Variables
from fdgjax.methods.parts.hyper import SERVER_LEARNING_RATES, TABLE_10, ByStart, ClientHyper, hyper, momentum_of
from fdgjax.methods.parts.optimizers import optimizer
from fdgjax.models.hypernetwork import HyperNetwork, find_layers
from fdgjax.utils.random import draw_each


@dataclasses.dataclass(frozen=True)
class HyperNetHyper(ClientHyper):
    """Hyperparameters of a method with a hypernetwork.

    server_optimizer: any optax optimiser that takes a learning rate, for theta and nu.
    server_learning_rate: of the server's optimiser. server_momentum: for optimisers that take one.
    weighting: of the clients' gradients, `uniform` or by their numbers of training `samples`.
    hidden: units of each layer of the hypernetwork. depth: number of the hypernetwork's hidden layers.
    server_weight_decay: added to the gradient of theta and nu, as PyTorch's Adam does.
    embedding_dim: e; 0 for the papers' floor(1 + clients / 4).
    initialisation: `torch`, `flax` or `model`, see `fdgjax.models.hypernetwork`; '' for `model` where the client model
      starts from pretrained weights, which the generated models then are near, else `torch`.
    """

    server_optimizer: str = hyper("adam", examples=True, search=("adam", "sgd"), source="hFedF v2, appendix C.7")
    server_learning_rate: float = hyper(1e-3, above=0, search=SERVER_LEARNING_RATES, source=TABLE_10)
    server_weight_decay: float = hyper(1e-5, search=(1e-3, 1e-4, 1e-5), source=TABLE_10)
    server_momentum: float = hyper(
        0.0, most=1, search=(0.0, 0.9), source="for SGD", when=momentum_of("server_optimizer")
    )
    weighting: str = hyper("uniform", search=("uniform", "samples"), source="hFedF v2, equation 8")
    embedding_dim: int = hyper(0, search=(0, 1, 8, 32), source="hFedF v2, section 5.1 and figure 8")
    hidden: int = hyper(50, least=1, search=(50, 100), source="hFedF v2, Table 8")
    depth: int = hyper(4, least=1, search=(4,), source="hFedF v2, Table 8")
    initialisation: str = hyper(
        "",
        search=("torch", "flax", "model"),
        source="not stated; docs/deviations.md",
        by_start=ByStart(scratch="torch", pretrained="model"),
    )


class HyperWeights(NamedTuple):
    """What the server learns: theta of the hypernetwork and one embedding per client, nu `[clients, e]`."""

    theta: PyTree
    nu: jax.Array


class Gradients(NamedTuple):
    """The clients' server gradients `J_i^T delta_i` with respect to theta and nu."""

    theta: Updates
    nu: Updates


class HyperServer(NamedTuple):
    """The hypernetwork's weights, the state of the server's optimiser, and the `ids` of the rows of nu."""

    weights: HyperWeights
    optimizer: PyTree
    ids: jax.Array


class HyperClient(NamedTuple):
    """A client's row: its place in the table of embeddings, and the variables that never leave it."""

    place: jax.Array
    local: Variables


def generated(path: str) -> str:
    """Parameters come from the hypernetwork, one set per client; statistics stay with the client."""
    return "personal" if path.startswith("params/") else "local"


def embedding_dim(h: HyperNetHyper, clients: int) -> int:
    """e; if it is not given, that of hFedF v2, section 5.1."""
    return h.embedding_dim or 1 + clients // 4


def build_network(model: Model, h: HyperNetHyper) -> HyperNetwork:
    """The hypernetwork for a client model, its heads found from the model's parameter tree."""
    shapes = model.shapes()
    return HyperNetwork(find_layers(shapes["params"]), hidden=h.hidden, depth=h.depth)


def random_embeddings(key: jax.Array, ids: jax.Array, dim: int) -> jax.Array:
    """nu ~ N(0, 1), `[clients, dim]`, each client's drawn by its id."""
    return draw_each(key, ids, lambda k: jax.random.normal(k, (dim,)))


def server_optimizer(h: HyperNetHyper) -> optax.GradientTransformation:
    """The server's optimiser over theta and nu."""
    return optimizer(
        h.server_optimizer,
        learning_rate=h.server_learning_rate,
        weight_decay=h.server_weight_decay,
        momentum=h.server_momentum,
    )
