"""What hFedF and pFedHN share: a server that keeps a hypernetwork and learns it from the clients' updates."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation import concatenated, pulled_back, regrouped, through_heads
from fdgjax.aggregation.weighting import normalise_weights
from fdgjax.contract import Context, Method, PyTree, ServerStep, Setup, Trained, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine.clients import over_clients
from fdgjax.methods.parts.generated_models import (
    Gradients,
    HyperClient,
    HyperNetHyper,
    HyperServer,
    HyperWeights,
    build_network,
    embedding_dim,
    generated,
    random_embeddings,
    server_optimizer,
)
from fdgjax.methods.parts.hyper import settled
from fdgjax.methods.parts.optimizers import client_optimizer
from fdgjax.methods.parts.server_state import WEIGHTINGS
from fdgjax.models.hypernetwork import Theta, init_hypernetwork
from fdgjax.objectives import cross_entropy
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import merge, select


def hypernet(
    setup: Setup,
    h: HyperNetHyper,
    *,
    align: Callable[[Gradients, jax.Array], tuple[HyperWeights, PyTree]],
    update: Callable[[HyperServer, HyperWeights, ServerStep], HyperServer],
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
    h = settled(h, pretrained=False)  # a config that was read has left nothing open
    network = build_network(setup.model, h)
    dim = embedding_dim(h, setup.clients)
    # A client's gradient with respect to theta is far larger than its model: only one at a time fits in memory.
    each = partial(over_clients, execution=setup.execution._replace(axis="map"))
    embeddings = embeddings or (lambda key, federation: random_embeddings(key, federation.ids, dim))

    def generate(weights: HyperWeights, place: jax.Array) -> PyTree:
        return network.apply({"params": weights.theta}, weights.nu[place])

    def trunk(layers: PyTree, nu: jax.Array, place: jax.Array) -> jax.Array:
        return jnp.asarray(network.apply({"params": layers}, nu[place], method="features"))

    def heads(layers: PyTree, features: jax.Array) -> PyTree:
        return network.apply({"params": layers}, features, method="heads")

    def init(key: jax.Array, federation: Federation) -> tuple[HyperServer, HyperClient]:
        model_key, theta_key, nu_key = jax.random.split(key, 3)
        variables = setup.model.init(model_key)
        nu, ids = embeddings(nu_key, federation), jnp.array(federation.ids)
        theta = init_hypernetwork(theta_key, network, nu.shape[1], variables["params"], h.initialisation)
        weights = HyperWeights(theta, nu)
        kept = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(ids)), select(variables, generated, "local"))
        return HyperServer(weights, server_optimizer(h).init(weights), ids), HyperClient(jnp.arange(len(ids)), kept)

    def send(server: HyperServer, client: HyperClient) -> Variables:
        return {"params": generate(server.weights, client.place)}

    def start(sent: Variables, client: HyperClient) -> Variables:
        return merge(sent, client.local)

    def predict(server: HyperServer, client: HyperClient) -> Variables:
        return start(send(server, client), client)

    def finish(context: Context, trained: Trained) -> tuple[PyTree, HyperClient]:
        # Initial minus trained: a gradient, so that the server descends (docs/deviations.md).
        gradient = optax.tree.sub(context.received["params"], trained.variables["params"])
        return gradient, context.client._replace(local=select(trained.variables, generated, "local"))

    def aggregate(
        server: HyperServer, clients: HyperClient, gradients: PyTree, weights: jax.Array
    ) -> tuple[HyperWeights, PyTree]:
        theta, nu = network.split(server.weights.theta), server.weights.nu
        features = jax.vmap(partial(trunk, theta.trunk, nu))(clients.place)
        g_heads, at_features = through_heads(heads, theta.heads, features=features, cotangents=gradients)
        pull = partial(pulled_back, inputs=clients.place, cotangents=at_features, each=each)
        g_trunk = pull(trunk, theta.trunk, nu)
        g_nu = pull(lambda nu, layers, place: trunk(layers, nu, place), nu, theta.trunk)
        g_theta = regrouped(
            concatenated(Theta(g_trunk, g_heads)), outward=lambda parts: parts.whole, inward=network.split
        )
        return align(Gradients(g_theta, g_nu), weights)

    def step(
        server: HyperServer, clients: HyperClient, gradient: HyperWeights, server_step: ServerStep
    ) -> tuple[HyperServer, HyperClient]:
        return update(server, gradient, server_step), clients

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
        keep_optimizer=h.keep_optimizer,
    )


def with_mean_embedding(server: HyperServer) -> HyperServer:
    """The server as if every client had the mean of all embeddings."""
    nu = server.weights.nu
    mean = jnp.broadcast_to(jnp.mean(nu, axis=0), nu.shape)
    return server._replace(weights=server.weights._replace(nu=mean))


def average(gradients: Gradients, weights: jax.Array) -> tuple[HyperWeights, PyTree]:
    """The plain mean of the clients' server gradients."""
    shares = normalise_weights(weights, gradients.theta.clients)
    return HyperWeights(gradients.theta.combine(shares), gradients.nu.combine(shares)), {"weights": shares}


def descend(server: HyperServer, gradient: HyperWeights, optimizer: optax.GradientTransformation) -> HyperServer:
    """One step of the server's optimiser along the aggregated gradient."""
    updates, state = optimizer.update(gradient, server.optimizer, server.weights)
    return server._replace(weights=optax.apply_updates(server.weights, updates), optimizer=state)
