"""What hFedF and pFedHN share: a server that keeps a hypernetwork and learns it from the clients' updates."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation import Updates, pulled_back
from fdgjax.aggregation.weighting import normalise
from fdgjax.contract import Context, Method, Model, Moment, PyTree, Setup, Trained, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine.clients import over_clients
from fdgjax.methods.parts.hyper import SERVER_LEARNING_RATES, TABLE_10, ClientHyper, hyper
from fdgjax.methods.parts.optimizers import client_optimizer, optimizer
from fdgjax.methods.parts.server import WEIGHTINGS
from fdgjax.models.hypernetwork import HyperNetwork, find_layers, init_hypernetwork
from fdgjax.objectives import cross_entropy
from fdgjax.randomness import draw_each
from fdgjax.registry import lookup
from fdgjax.variables import merge, select, subtract


@dataclasses.dataclass(frozen=True)
class HyperNetHyper(ClientHyper):
    """Hyperparameters of a method with a hypernetwork.

    server_weight_decay: added to the gradient of theta and nu, as PyTorch's Adam does.
    embedding_dim: e; 0 for the papers' floor(1 + clients / 4).
    initialisation: `torch`, `flax` or `model`, see `fdgjax.models.hypernetwork`.
    """

    server_optimizer: str = hyper("adam", search=("adam", "sgd"), source="hFedF v2, appendix C.7")
    server_learning_rate: float = hyper(1e-3, search=SERVER_LEARNING_RATES, source=TABLE_10)
    server_weight_decay: float = hyper(1e-5, search=(1e-3, 1e-4, 1e-5), source=TABLE_10)
    server_momentum: float = hyper(0.0, search=(0.0, 0.9), source="for SGD")
    weighting: str = hyper("uniform", search=("uniform", "samples"), source="hFedF v2, equation 8")
    embedding_dim: int = hyper(0, search=(0, 1, 8, 32), source="hFedF v2, section 5.1 and figure 8")
    hidden: int = hyper(50, search=(50, 100), source="hFedF v2, Table 8")
    depth: int = hyper(4, search=(4,), source="hFedF v2, Table 8")
    initialisation: str = hyper("torch", search=("torch", "flax", "model"), source="not stated; docs/deviations.md")


class Weights(NamedTuple):
    """What the server learns: theta of the hypernetwork and one embedding per client, nu `[clients, e]`."""

    theta: PyTree
    nu: jax.Array


class Gradients(NamedTuple):
    """The clients' server gradients `J_i^T delta_i` by theta and by nu."""

    theta: Updates
    nu: Updates


class Server(NamedTuple):
    """The hypernetwork's weights, the state of the server's optimiser, and the `ids` of the rows of nu."""

    weights: Weights
    optimizer: PyTree
    ids: jax.Array


class Client(NamedTuple):
    """A client's row: its place in the table of embeddings, and the variables that never leave it."""

    place: jax.Array
    local: Variables


def generated(path: str) -> str:
    """Parameters come from the hypernetwork, one set per client; statistics stay with the client."""
    return "personal" if path.startswith("params/") else "local"


def embedding_dim(h: HyperNetHyper, clients: int) -> int:
    """e, hFedF v2 section 5.1 where it is not given."""
    return h.embedding_dim or 1 + clients // 4


def build_network(model: Model, h: HyperNetHyper) -> HyperNetwork:
    """The hypernetwork for a client model, its heads found from the model's parameter tree."""
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return HyperNetwork(find_layers(shapes["params"]), hidden=h.hidden, depth=h.depth)


def random_embeddings(key: jax.Array, ids: jax.Array, dim: int) -> jax.Array:
    """nu ~ N(0, 1), `[clients, dim]`, each client's by its id."""
    return draw_each(key, ids, lambda k: jax.random.normal(k, (dim,)))


def server_optimizer(h: HyperNetHyper) -> optax.GradientTransformation:
    """The server's optimiser over theta and nu."""
    return optimizer(
        h.server_optimizer,
        learning_rate=h.server_learning_rate,
        weight_decay=h.server_weight_decay,
        momentum=h.server_momentum,
    )


def hypernet(
    setup: Setup,
    h: HyperNetHyper,
    *,
    align: Callable[[Gradients, jax.Array], tuple[Weights, PyTree]],
    update: Callable[[Server, Weights, Moment], Server],
    embeddings: Callable[[jax.Array, Federation], jax.Array] | None = None,
) -> Method:
    """A method whose server keeps a hypernetwork.

    Args:
      setup: what the method is built for.
      h: hyperparameters.
      align: the aggregation of the clients' server gradients, `(gradients, weights) -> (gradient, coefficients)`.
      update: the server's step with the aggregated gradient.
      embeddings: initial nu, `(key, federation) -> [clients, e]`; random by default.
    """
    network = build_network(setup.model, h)
    dim = embedding_dim(h, setup.clients)
    # A client's gradient by theta is many times its model, so that only one at a time has room.
    each = partial(over_clients, execution=setup.execution._replace(axis="map"))
    embeddings = embeddings or (lambda key, federation: random_embeddings(key, federation.ids, dim))

    def generate(weights: Weights, place: jax.Array) -> PyTree:
        return network.apply({"params": weights.theta}, weights.nu[place])

    def init(key: jax.Array, federation: Federation) -> tuple[Server, Client]:
        model_key, theta_key, nu_key = jax.random.split(key, 3)
        variables = setup.model.init(model_key)
        nu, ids = embeddings(nu_key, federation), jnp.array(federation.ids)
        theta = init_hypernetwork(theta_key, network, nu.shape[1], variables["params"], h.initialisation)
        weights = Weights(theta, nu)
        kept = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(ids)), select(variables, generated, "local"))
        return Server(weights, server_optimizer(h).init(weights), ids), Client(jnp.arange(len(ids)), kept)

    def send(server: Server, client: Client) -> Variables:
        return {"params": generate(server.weights, client.place)}

    def start(sent: Variables, client: Client) -> Variables:
        return merge(sent, client.local)

    def predict(server: Server, client: Client) -> Variables:
        return start(send(server, client), client)

    def finish(context: Context, trained: Trained) -> tuple[PyTree, Client]:
        # Initial minus trained: a gradient, so that the server descends (docs/deviations.md).
        gradient = subtract(context.received["params"], trained.variables["params"])
        return gradient, context.client._replace(local=select(trained.variables, generated, "local"))

    def aggregate(server: Server, clients: Client, gradients: PyTree, weights: jax.Array) -> tuple[Weights, PyTree]:
        theta, nu = server.weights
        pull = partial(pulled_back, inputs=clients.place, cotangents=gradients, each=each)
        g_theta = pull(lambda theta, nu, place: generate(Weights(theta, nu), place), theta, nu)
        g_nu = pull(lambda nu, theta, place: generate(Weights(theta, nu), place), nu, theta)
        return align(Gradients(g_theta, g_nu), weights)

    def step(server: Server, clients: Client, gradient: Weights, moment: Moment) -> tuple[Server, Client]:
        return update(server, gradient, moment), clients

    return Method(
        init=init,
        send=send,
        start=start,
        objective=cross_entropy(setup.model),
        optimizer=client_optimizer(h, setup.rounds),
        finish=finish,
        aggregate=aggregate,
        update=step,
        predict=predict,
        unseen=jax.vmap(predict, in_axes=(None, 0)),
        label=generated,
        weights=lookup("weighting", h.weighting, WEIGHTINGS),
        trained=lambda variables: variables,
    )


def average(gradients: Gradients, weights: jax.Array) -> tuple[Weights, PyTree]:
    """The plain mean of the clients' server gradients."""
    shares = normalise(weights, gradients.theta.clients)
    return Weights(gradients.theta.combine(shares), gradients.nu.combine(shares)), {"weights": shares}


def descend(server: Server, gradient: Weights, optimizer: optax.GradientTransformation) -> Server:
    """One step of the server's optimiser along the aggregated gradient."""
    updates, state = optimizer.update(gradient, server.optimizer, server.weights)
    return server._replace(weights=optax.apply_updates(server.weights, updates), optimizer=state)
