"""ATP (adaptive test-time personalization): one unsupervised step to a new client, whose size for each array of the
network is learned from the labelled clients.

    h_l  = -gradient over w_l of mean entropy(f(x; w))     for an array of parameters
    h_l  = the batch's moment - the running moment         for mean or variance of a BatchNorm layer
    w'_l = w_l + alpha_l h_l                               a minibatch's adapted model; no variance below 0
    alpha_l <- alpha_l - rate dCE(f(x; w'), y) / d alpha_l / sqrt(n_l)          n_l numbers in w_l, alpha = 0 at first

All passes are in evaluation mode, so that a layer's input is that of the network which predicts. The last `rate_share`
of the rounds train alpha with the model fixed, the rounds before are FedAvg's; with `beside` every step trains both.
The server averages alpha as it does the model. One number for each array travels with the model. With alpha = 0 it is
FedAvg, and nothing adapts.

On an unseen domain the model takes this step on all samples (the mean of its minibatches' steps), on each batch
(`config.adaptation.scope=batch`), or, with `stream`, adapts the last model further (`online=last`) or predicts with the
mean of the models adapted to the batches so far (`online=average`, the official code's `online_avg`).

Bao, Wei, Wang and He, "Adaptive test-time personalization for federated learning", NeurIPS 2023, and its official code
(baowenxuan/ATP).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import (
    Batch,
    Context,
    Method,
    Model,
    Objective,
    ObjectiveResult,
    Output,
    PyTree,
    ServerStep,
    Setup,
    Unlabelled,
    Variables,
)
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import When, hyper
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.nn import recording_moments
from fdgjax.objectives import cross_entropy, entropies, mean_cross_entropy
from fdgjax.objectives.cross_entropy import masked_mean
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten, module_of, unflatten

OFFICIAL = "Bao et al., official code"
RATES, STREAM, STEP, SEEN = "rates", "stream", "step", "seen"
"""Collections of variables that the network does not read: alpha; of a model for an unseen domain, the model as it was
trained and the number of samples it has adapted to; while a step is measured, its mean and the number of samples."""

NORMS: Mapping[str, Callable[[int], float]] = {
    "root": lambda size: size**0.5,
    "size": lambda size: float(size),
    "none": lambda size: 1.0,
}
"""What the gradient of an array's rate is divided by, given how many numbers the array has."""


@dataclasses.dataclass(frozen=True)
class ATP(FedAvg):
    """FedAvg's hyperparameters and those of the adaptation rates.

    rate_learning_rate: learning rate of the adaptation rates. rate_norm: what the rates' gradients are divided by, an
      entry of `NORMS`.
    beside: whether every step trains the rates together with the model. rate_share: without `beside`, the share of the
      rounds, at the end, that train the rates with the model fixed.
    online: what predicts a stream of batches: the `last` model, adapted from the one before, or the `average` of the
      models adapted to each batch, for which a model for an unseen domain also holds the trained one.
    """

    rate_learning_rate: float = hyper(0.1, search=(0.01, 0.1, 1.0), source=f"{OFFICIAL}: 0.1 for ResNet-18")
    rate_norm: str = hyper("root", search=tuple(NORMS), source=f"{OFFICIAL}: sqrt_numel")
    beside: bool = hyper(False, search=(False, True), source="Bao et al.: on a trained model")
    rate_share: float = hyper(
        0.5, most=1, search=(0.2, 0.5), source="docs/deviations.md", when=When(lambda h: not h.beside)
    )
    online: str = hyper("last", search=("last", "average"), source="docs/deviations.md")


def atp(setup: Setup, h: ATP) -> Method:
    """FedAvg with adaptation rates, which its variables hold in a collection that the network does not read."""
    model = setup.model
    first = setup.rounds - int(float(h.rate_share) * setup.rounds)
    supervised = cross_entropy(model)

    def init(key: jax.Array) -> Variables:
        variables = model.init(key)
        return {**variables, RATES: zero_rates(variables)}

    def apply(variables: Variables, inputs: jax.Array, train: bool, key: jax.Array) -> tuple[Output, Variables]:
        return model.apply(of_network(variables), inputs, train, key)

    def of_model(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, changed = supervised(of_network(variables), batch, key, context)
        return loss, {**besides_params(variables), **changed}

    def of_rates(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, rates = trained_rates(model, variables, batch, h)
        return loss, {**besides_params(variables), RATES: rates}

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        if h.beside:
            (loss, changed), (_, rates) = (each(variables, batch, key, context) for each in (of_model, of_rates))
            return loss, {**changed, RATES: rates[RATES]}
        chosen: ObjectiveResult = jax.lax.cond(
            context.round >= first,
            lambda given: of_rates(given, batch, key, context),
            lambda given: of_model(given, batch, key, context),
            variables,
        )
        return chosen

    base = fedavg(setup._replace(model=Model(init, apply)), h, objective=objective)

    def update(server: ServerState, clients: PyTree, step: PyTree, server_step: ServerStep) -> tuple[PyTree, PyTree]:
        moved, rows = base.update(server, clients, step, server_step)
        # A server's optimiser with momentum moves without a gradient.
        params, state = optax.tree.where(
            server_step.round >= first,
            (server.variables["params"], server.optimizer),
            (moved.variables["params"], moved.optimizer),
        )
        return moved._replace(variables={**moved.variables, "params": params}, optimizer=state), rows

    def unseen(server: ServerState, clients: PyTree) -> Variables:
        models = base.unseen(server, clients)
        count = len(jax.tree.leaves(models)[0])
        return {**models, STREAM: {"origin": of_network(models), SEEN: jnp.zeros(count)}}

    adapting = base._replace(
        predict=lambda server, client: of_network(base.predict(server, client)),
        unseen=unseen if lookup("online", h.online, ONLINE) else base.unseen,
        adapt=by_rates(model),
    )
    return adapting if h.beside else adapting._replace(update=update, optimizer=held_from(base.optimizer, first))


ONLINE: Mapping[str, bool] = {"average": True, "last": False}
"""Whether a model for an unseen domain carries the trained one along, to average over a stream."""


def of_network(variables: Variables) -> Variables:
    """The variables that the network reads."""
    return {name: tree for name, tree in variables.items() if name not in (RATES, STREAM, STEP, SEEN)}


def besides_params(variables: Variables) -> Variables:
    """What an objective hands back."""
    return {name: tree for name, tree in variables.items() if name != "params"}


def held_from(optimizer: optax.GradientTransformation, first: int) -> optax.GradientTransformationExtraArgs:
    """The optimiser until round `first`, from which neither parameters nor its state move: weight decay and momentum
    would move them without a gradient."""
    flexible = optax.with_extra_args_support(optimizer)

    def update(
        updates: PyTree, state: PyTree, params: PyTree | None = None, *, round: jax.Array, **others: Any
    ) -> tuple[PyTree, PyTree]:
        nothing = optax.tree.zeros_like(updates)
        moves, after = flexible.update(updates, state, params, round=round, **others)
        still: tuple[PyTree, PyTree] = optax.tree.where(round >= first, (nothing, state), (moves, after))
        return still

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def zero_rates(variables: Variables) -> Variables:
    """A rate, 0, for each array of parameters, and for each mean and variance that a BatchNorm layer keeps."""
    paths = [path for path in flatten(variables) if path.startswith("params/") or is_moment(path)]
    return unflatten({path: jnp.zeros(()) for path in paths})


def is_moment(path: str) -> bool:
    """Whether this is a running mean or variance."""
    return path.startswith("batch_stats/") and path.endswith(("/mean", "/var"))


def unsupervised_step(model: Model, variables: Variables, batch: Batch) -> Variables:
    """`h` of a batch for each array that has a rate; 0 for statistics of layers other than BatchNorm."""

    def uncertainty(params: PyTree) -> tuple[jax.Array, dict[str, tuple[jax.Array, jax.Array]]]:
        found: dict[str, tuple[jax.Array, jax.Array]] = {}
        with recording_moments(found, batch.mask):
            output = model.evaluate({**variables, "params": params}, batch.inputs)
        return masked_mean(entropies(output.logits), batch.mask), found

    gradient, found = jax.grad(uncertainty, has_aux=True)(variables["params"])
    step = {f"params/{path}": -leaf for path, leaf in flatten(gradient).items()}
    for path, kept in flatten(variables).items():
        if is_moment(path):
            moments = dict(zip(("mean", "var"), found.get(module_of(path), (kept, kept)), strict=False))
            step[path] = moments[path.rpartition("/")[2]].astype(kept.dtype) - kept
    return unflatten(step)


def moved(variables: Variables, rates: Variables, step: Variables) -> Variables:
    """`w + alpha h`, variances cut off at 0."""
    flat, along = flatten(variables), flatten(step)

    def of(path: str, rate: jax.Array) -> jax.Array:
        there = flat[path] + rate * along[path]
        return jnp.maximum(there, 0) if is_moment(path) and path.endswith("/var") else there

    return unflatten({**flat, **{path: of(path, rate) for path, rate in flatten(rates).items()}})


def trained_rates(model: Model, variables: Variables, batch: Batch, h: ATP) -> tuple[jax.Array, Variables]:
    """The cross-entropy of the model adapted to a labelled batch, and the rates after a step along its gradient over
    them; neither has a gradient over the model."""
    variables = jax.lax.stop_gradient(variables)
    network, rates = of_network(variables), variables[RATES]
    step = unsupervised_step(model, network, batch)

    def loss_of(rates: Variables) -> jax.Array:
        output = model.evaluate(moved(network, rates, step), batch.inputs)
        return mean_cross_entropy(output.logits, batch)

    norm = lookup("rate_norm", h.rate_norm, NORMS)
    loss, gradient = jax.value_and_grad(loss_of)(rates)
    changed = jax.tree.map(
        lambda rate, slope, along: rate - h.rate_learning_rate * slope / norm(along.size), rates, gradient, step
    )
    return jax.lax.stop_gradient(loss), jax.lax.stop_gradient(changed)


def mean_step(model: Model) -> Objective:
    """A zero loss, after which `step` is the mean of all batches' steps so far, each weighted by its samples, which
    `seen` counts; both begin with 0."""

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del key, context
        here = jnp.sum(batch.mask)
        seen = variables[SEEN] + here
        share = here / jnp.maximum(seen, 1)
        new = unsupervised_step(model, of_network(variables), batch)
        mean = jax.tree.map(lambda old, now: old + share * (now - old), variables[STEP], new)
        return jnp.zeros(()), {STEP: mean, SEEN: seen}

    return objective


def by_rates(model: Model) -> Callable[[Variables, Unlabelled], Variables]:
    """The adaptation to a domain, or a batch, by one step of the variables' own rates."""
    measure = mean_step(model)

    def adapt(variables: Variables, domain: Unlabelled) -> Variables:
        stream, latest, rates = variables.get(STREAM), of_network(variables), variables[RATES]
        origin = stream["origin"] if stream else latest
        blank = {path: jnp.zeros_like(leaf) for path, leaf in flatten(origin).items() if path in flatten(rates)}
        begin = {**origin, STEP: unflatten(blank), SEEN: jnp.zeros(())}
        measured = domain.fit(begin, measure, optax.set_to_zero(), 1)
        adapted = moved(origin, rates, measured[STEP])
        if not stream:
            return {**variables, **adapted}
        seen = stream[SEEN] + measured[SEEN]
        share = measured[SEEN] / jnp.maximum(seen, 1)
        mean = jax.tree.map(lambda old, new: old + share * (new - old), latest, adapted)
        return {**variables, **mean, STREAM: {**stream, SEEN: seen}}

    return adapt


ENTRY = Entry("atp", ATP, atp, "learns how far each layer adapts to an unseen domain (Bao et al., 2023)", title="ATP")
