"""PartialFed: each client loads some layers of the global model and keeps its own for the others; the policy that
selects them is learnt (PartialFed-Adaptive) or fixed (PartialFed-Fix).

    w_i = { w^l where a_i^l > 0, else v_i^l }_l                          partial initialisation: w sent, v_i kept
    v_i <- local epochs of L_i from w_i;    w <- sum_i p_i v_i           all layers are sent and averaged
    a_i <- gradient steps on L_i(u w + (1 - u) v_i),  u = sigmoid((a_i + g) / T)

In the last line v_i is the kept model and g logistic noise, drawn for every batch (a Gumbel-softmax of two choices); no
gradient flows to w or v_i. The recorded loss is the sum of both losses. A layer here is a module with variables of its
own, so that BatchNorm (parameters and statistics) is a layer by itself. For a client, the w_i of its next round
predicts; for an unseen domain, the global model or each client's w_i. Loading all layers is FedAvg, loading none is
Local.

Sun et al., "PartialFed: cross-domain personalized federated learning via partial initialization", 2021. The paper
leaves choices open and has no official code: docs/deviations.md.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, PyTree, Setup, Variables
from fdgjax.methods.fedavg import FedAvg, Message, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, RowExtension, extend
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.optimizers import client_optimizer, optimizer
from fdgjax.methods.parts.requirements import SEVERAL_CLIENTS
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.objectives import cross_entropy
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten, merge, module_of, norm_paths, unflatten

POLICIES: Mapping[str, Callable[[bool], float]] = {
    "all": lambda is_norm: 1.0,
    "all_but_norm": lambda is_norm: -1.0 if is_norm else 1.0,
    "none": lambda is_norm: -1.0,
}
"""Initial policies: a of a layer, by whether it is a norm."""


@dataclasses.dataclass(frozen=True)
class PartialFed(FedAvg):
    """FedAvg's hyperparameters and the policy's.

    policy: the layers loaded at first: `all`, `all_but_norm` (BatchNorm) or `none`; a is 1 or -1.
    policy_learning_rate: of the policy, whose optimiser is of the clients' kind; 0 keeps the initial policy.
    temperature: T.
    unseen: the `global` model predicts for an unseen domain, or `each` client's (the accuracies are averaged).
    """

    policy: str = hyper("all", search=tuple(POLICIES), source="section 3.2, PartialFed-Fix")
    policy_learning_rate: float = hyper(1e-2, search=(0.0, 1e-1, 1e-2, 1e-3), source="not stated; docs/deviations.md")
    temperature: float = hyper(1.0, above=0, search=(0.1, 1.0, 5.0), source="not stated; docs/deviations.md")
    unseen: str = hyper("global", search=("global", "each"), source="docs/deviations.md")


def partialfed(setup: Setup, h: PartialFed) -> Method:
    """FedAvg with partial initialisation."""
    shapes = setup.model.shapes()
    norms = norm_paths(shapes)
    places = {module: place for place, module in enumerate(sorted({module_of(path) for path in flatten(shapes)}))}
    first = jnp.array([lookup("policy", h.policy, POLICIES)(module in norms) for module in places], jnp.float32)
    plain = cross_entropy(setup.model)

    def with_policy(key: jax.Array) -> Variables:
        return merge(setup.model.init(key), {"params": {"policy": first}})

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, aux = plain(without_policy(variables), batch, key, context)
        if not h.policy_learning_rate:
            return loss, aux
        policy = variables["params"]["policy"]
        noise = jax.random.logistic(jax.random.fold_in(key, 1), policy.shape)
        share = jax.nn.sigmoid((policy + noise) / h.temperature)
        blended, _ = plain(
            layerwise(places, blend_variables, share, context.sent, context.client.more), batch, key, context
        )
        return loss + blended, aux

    base = fedavg(
        setup._replace(model=setup.model._replace(init=with_policy)),
        dataclasses.replace(h, unseen="each"),
        label=lambda path: "local" if path == "params/policy" else "shared",
    )
    own = RowExtension(
        lambda fresh: without_policy(fresh.models()), lambda context, trained: without_policy(trained.variables)
    )
    extended = extend(base, row=own)

    def start(sent: Variables, client: Extended) -> Variables:
        loads = client.base.local["params"]["policy"] > 0
        return merge(layerwise(places, jnp.where, loads, sent, client.more), client.base.local)

    def predict(server: ServerState, client: Extended) -> Variables:
        return without_policy(start(extended.send(server, client), client))

    def predict_unseen(server: ServerState, clients: Extended) -> Variables:
        del clients
        return jax.tree.map(lambda leaf: leaf[None], server.variables)

    def aggregate(
        server: ServerState, clients: Extended, messages: Message, weights: jax.Array
    ) -> tuple[Message, PyTree]:
        combined, info = extended.aggregate(server, clients, messages, weights)
        return combined, info | {"policy": clients.base.local["params"]["policy"]}

    unseen = {"global": predict_unseen, "each": jax.vmap(predict, in_axes=(None, 0))}
    optimizers = {
        "model": client_optimizer(h, setup.rounds),
        "policy": optimizer(h.client_optimizer, learning_rate=h.policy_learning_rate),
    }
    return extended._replace(
        start=start,
        objective=objective,
        optimizer=optax.partition(
            optimizers, lambda params: {n: "policy" if n == "policy" else "model" for n in params}
        ),
        aggregate=aggregate,
        trained=without_policy,
        predict=predict,
        unseen=lookup("unseen", h.unseen, unseen),
    )


def without_policy(variables: Variables) -> Variables:
    """The model's variables without the policy."""
    return {**variables, "params": {name: leaf for name, leaf in variables["params"].items() if name != "policy"}}


def blend_variables(share: jax.Array, loaded: jax.Array, kept: jax.Array) -> jax.Array:
    """`u w + (1 - u) v`."""
    return share * loaded + (1 - share) * kept


def layerwise(
    places: Mapping[str, int], how: Callable[..., jax.Array], by: jax.Array, loaded: Variables, kept: Variables
) -> Variables:
    """`how(by[l], w^l, v^l)` for each variable, l the place of its module; `by` is `[layers]`."""
    others = flatten(kept)
    return unflatten(
        {path: how(by[places[module_of(path)]], leaf, others[path]) for path, leaf in flatten(loaded).items()}
    )


ENTRY = Entry(
    "partialfed",
    PartialFed,
    partialfed,
    "each client learns which layers to load (Sun et al., 2021)",
    title="PartialFed",
    needs=(SEVERAL_CLIENTS,),
)
