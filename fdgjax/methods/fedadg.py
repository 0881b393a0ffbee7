"""FedADG: clients pull their features, class by class, towards a reference distribution that they learn together.

    L_D = mean (1 - D(G(n, y), y))^2 + D(F(x), y)^2          a client's discriminator, which stays there
    L_F = (1 - weight) CE + weight mean (1 - D(F(x), y))^2   features F and classifier, averaged as in FedAvg
    L_G = mean D(G(n, y), y)^2                               the generator of the reference, averaged, too

F(x) are the features (the inputs of the last layer), y the label as a vector, and n noise, uniform in [0, 1], of half
as many numbers. Each loss trains its own network alone: the three are trained in the same step, each on its own
gradient, and the recorded loss is L_F. With weight 0 it is FedAvg. The network alone predicts, without G and D.

Zhang, Lei, Shi, Huang and Chen, "Federated learning with domain generalization", 2021, and its official code
(Haoxiang-Wang/FedADG), which has the weights 0.85 and 0.15.
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, PyTree, Setup, Variables
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.optimizers import client_optimizer
from fdgjax.methods.parts.requirements import CLASSES, FEATURES, last_layer
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.models.adversary import Adversary
from fdgjax.objectives import mean_cross_entropy
from fdgjax.objectives.cross_entropy import masked_mean
from fdgjax.utils.variables import flatten, merge

OFFICIAL = "Zhang et al., official code"


@dataclasses.dataclass(frozen=True)
class FedADG(FedAvg):
    """FedAvg's hyperparameters and the adversary's.

    weight: of the features' distance from the reference; the cross-entropy has the rest.
    adversary_learning_rate: learning rate of generator and discriminator; their optimiser is otherwise the clients'.
    adversary_units: hidden units of generator and discriminator, each.
    """

    weight: float = hyper(0.15, most=1, search=(0.05, 0.15, 0.5), source=f"{OFFICIAL}: 0.15")
    adversary_learning_rate: float = hyper(
        7e-4, above=0, search=(7e-3, 7e-4, 7e-5), source=f"{OFFICIAL}: 0.7 times the network's"
    )
    adversary_units: int = hyper(1024, least=1, search=(256, 1024), source=f"{OFFICIAL}: 1024 and 4096")


def fedadg(setup: Setup, h: FedADG) -> Method:
    """FedAvg with an adversary beside the network; the network alone predicts."""
    model = setup.model
    size, classes = flatten(model.shapes())[last_layer(model)].shape
    noise = max(size // 2, 1)
    network = Adversary(size, h.adversary_units)

    def with_adversary(key: jax.Array) -> Variables:
        first = network.init(jax.random.fold_in(key, 1), jnp.zeros((1, noise)), jnp.zeros((1, classes)))
        return merge(model.init(key), {"params": {"adversary": first["params"]}})

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        output, changed = model.apply(network_alone(variables), batch.inputs, True, key)
        loss = mean_cross_entropy(output.logits, batch)
        if not h.weight:
            return loss, changed
        y = jax.nn.one_hot(batch.labels, classes)
        drawn = jax.random.uniform(jax.random.fold_in(key, 1), (len(y), noise))
        far, adversarial = adversarial_losses(
            network, variables["params"]["adversary"], output.features, drawn, y, batch.mask
        )
        unseen = adversarial - jax.lax.stop_gradient(adversarial)
        return (1 - h.weight) * loss + h.weight * far + unseen, changed

    def label(path: str) -> str:
        return "local" if path.startswith(("params/adversary/projection", "params/adversary/disc")) else "shared"

    base = fedavg(setup._replace(model=model._replace(init=with_adversary)), h, label=label)
    adversary = dataclasses.replace(h, client_learning_rate=h.adversary_learning_rate, client_clip=0.0)
    optimizers = {"model": client_optimizer(h, setup.rounds), "adversary": client_optimizer(adversary, setup.rounds)}

    def predict(server: ServerState, client: PyTree) -> Variables:
        del client
        return network_alone(server.variables)

    def unseen(server: ServerState, clients: PyTree) -> Variables:
        return jax.tree.map(lambda leaf: leaf[None], predict(server, clients))

    return base._replace(
        objective=objective,
        optimizer=optax.partition(
            optimizers, lambda params: {name: "adversary" if name == "adversary" else "model" for name in params}
        ),
        predict=predict,
        unseen=unseen,
        trained=None,
    )


def adversarial_losses(
    network: Adversary, params: PyTree, features: jax.Array, noise: jax.Array, y: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The features' distance from the reference, `mean (1 - D(F(x), y))^2`, whose gradient is that of the features
    alone, and L_D + L_G, in which each network has the gradient of its own loss.

    Args:
      network, params: generator and discriminator.
      features: F(x), `[batch, m]`. noise: `[batch, n]`. y: `[batch, classes]`. mask: `[batch]`.
    """
    fixed = jax.lax.stop_gradient

    def judge(params: PyTree, features: jax.Array) -> jax.Array:
        return jnp.asarray(network.apply({"params": params}, features, y, method=network.judge))

    generated = jnp.asarray(network.apply({"params": params}, noise, y, method=network.generate))
    far = masked_mean(jnp.square(1 - judge(fixed(params), features)), mask)
    discriminator = jnp.square(1 - judge(params, fixed(generated))) + jnp.square(judge(params, fixed(features)))
    generator = jnp.square(judge(fixed(params), generated))
    return far, masked_mean(discriminator + generator, mask)


def network_alone(variables: Variables) -> Variables:
    """The client model's variables, without the adversary's."""
    return {**variables, "params": {name: leaf for name, leaf in variables["params"].items() if name != "adversary"}}


ENTRY = Entry(
    "fedadg",
    FedADG,
    fedadg,
    "features pulled to a learnt reference of their class (Zhang et al., 2021)",
    title="FedADG",
    needs=(CLASSES, FEATURES),
)
