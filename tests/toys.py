"""A federation small enough to be trained by a plain Python loop, and every method on it, compiled once."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Batch, Context, Method, Model, Objective, PyTree, Setup
from fdgjax.data.federation import Federation, Rows, on_device, pool
from fdgjax.data.sources.domains import Domains
from fdgjax.engine import Execution, RoundInfo, RoundPlan, State, compile_round, init_state
from fdgjax.engine.local import Batching
from fdgjax.methods import METHODS
from fdgjax.methods.atp import RATES
from fdgjax.methods.central import Central
from fdgjax.run.loop import round_record
from tests.toy_models import CLASSES, IMAGE, tiny_model

DOMAINS = 3
LENGTHS = (5, 8, 1, 9)
"""Training samples per client: with batches of 4, a partial batch of 1, none, one client smaller than a batch."""
FULL_LENGTHS = (6, 8, 3, 11)
"""The same for what divides by the spread of a batch, or compares its samples: no batch of copies or of one sample."""
CLIENTS = len(LENGTHS)
BATCH = 4
POISON = 255
"""The brightness of an image that makes a toy method's loss NaN; no other is all of it."""

SMALL: Mapping[str, Any] = {
    "client_optimizer": "sgd",
    "client_learning_rate": 0.1,
    "client_momentum": 0.9,
    "client_weight_decay": 1e-2,
    "hidden": 5,
    "depth": 2,
    "autoencoder_epochs": 1,
    "temperature": 0.5,
    "least_samples": 1,
    "adversary_units": 4,
}
"""Hyperparameters for tiny shapes, where a method has them; SGD, so that rounding stays rounding."""
KINDS = {
    "fedavg": "the server keeps one model, clients keep nothing",
    "local": "clients keep models and optimisers, the server nothing",
    "central": "one client with everybody's data",
    "scaffold": "the server and clients remember something beside models",
    "hfedf": "the server keeps a network, an optimiser and a row for each client; its rule looks at directions",
    "fdse": "variables shared, personal and local, each with a rule of its own, one of which iterates",
    "uap": "clients prepare labels, the server trains in a stage of its own",
}
"""One method for each kind of state and of round, and why.

What the engine does around a whole round, whatever its method (several seeds, several devices, evaluation), is tested
on these; what a method may break by itself, on every one.
"""
GENTLE: Mapping[str, Any] = {"client_learning_rate": 0.002, "augmentation": "flip", "queue": 16}
"""For losses whose gradients are large where a batch has hardly any negatives; and views that compile quickly."""
POOLED = tuple(sorted(name for name, entry in METHODS.items() if issubclass(entry.hyper, Central)))
"""The methods of one client with everybody's data."""
OBJECTIVES_ALONE = ("coral", "fishr", "irm", "mixup", "mmd", "vrex")
"""Those of them that differ by their objectives from `central`, or from `groupdro`, which also remembers something."""
SURE = {"semifl": {"threshold": 0.0}, "cbafed": {"threshold": -2.0}}
"""Every pseudo-label is used, where a method leaves samples out: an untrained network is sure of none."""
MILD = {"fishr": {"penalty": 0.5}, "irm": {"penalty": 2.0}, "mmd": {"penalty": 0.1}, "vrex": {"penalty": 0.5}}
"""Penalties that leave rounding rounding: the papers' weights need Adam."""
QUICK = {"fedccrl": {"augmentation": "none"}}
"""What would take most of a program's compilation, and is tested by itself."""
EARLY = {"atp": {"rate_share": 0.7}}
"""Of three rounds the second trains the rates, so that what is tested in two rounds sees them."""
SMALL_HYPERNET: Mapping[str, Any] = {
    "server_optimizer": "sgd",
    "server_learning_rate": 0.05,
    "server_weight_decay": 1e-2,
}


def lengths_for(method: str) -> tuple[int, ...]:
    """Training samples per client of the standard federation of a method."""
    entry = METHODS[method]
    return FULL_LENGTHS if entry.unit or entry.unlabelled else LENGTHS


def rows_of(lengths: Sequence[int], first: int, longest: int) -> Rows:
    """Consecutive rows of the data set from `first`, padded with zeros."""
    places = np.zeros((len(lengths), longest), np.int32)
    for client, length in enumerate(lengths):
        places[client, :length] = first + np.arange(length)
        first += length
    return Rows(on_device(places), on_device(lengths))


@functools.lru_cache
def toy_federation(lengths: tuple[int, ...] = LENGTHS, held: int = 3, unseen: int = 7, longest: int = 0) -> Federation:
    """Clients of `lengths` training and `held` validation samples (one more each), `unseen` of the target; rows are as
    long as the longest, or `longest`.

    The ids are not the positions.
    """
    rng = np.random.default_rng(7)
    validation = [held + client for client in range(len(lengths))]
    train, many = rows_of(lengths, 0, longest or max(lengths)), sum(lengths)
    held_out = rows_of(validation, many, max(validation))
    samples = many + sum(validation) + unseen
    labels = rng.integers(0, CLASSES, samples)
    domains = rng.integers(0, DOMAINS - 1, samples)
    domains[-unseen:] = DOMAINS - 1
    # An image is brighter where its class says so, so that there is something to learn.
    images = rng.integers(0, 180, (samples, *IMAGE)) + 25 * labels[:, None, None, None]
    return Federation(
        inputs=jax.device_put(images.astype(np.uint8)),
        labels=jax.device_put(labels.astype(np.int32)),
        domains=jax.device_put(domains.astype(np.int32)),
        ids=jax.device_put(np.asarray([11 + 3 * client for client in range(len(lengths))], np.int32)),
        train=train,
        validation=held_out,
        test=rows_of([0] * len(lengths), 0, 1),
        target=rows_of([unseen], samples - unseen, unseen),
        server=rows_of([sum(validation[:2])], many, sum(validation[:2])),
    )


def domains_of(sizes: Sequence[int], seed: int = 0) -> Domains:
    """A data set with so many samples of each domain, in random order."""
    rng = np.random.default_rng(seed)
    domain = rng.permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(np.int32)
    images = rng.integers(0, 256, (len(domain), 2, 2, 1), np.uint8)
    names = ("east", "west", "north", "south")[: len(sizes)]
    return Domains(images, rng.integers(0, 3, len(domain)).astype(np.int32), domain, names, ("a", "b", "c"))


def reorder(federation: Federation, order: Sequence[int]) -> Federation:
    """The clients in another order (or only some of them), each with its id."""
    rows = {name: row(getattr(federation, name), order) for name in ("train", "validation", "test")}
    return federation._replace(ids=row(federation.ids, order), **rows)


def small_hyper(name: str, **chosen: Any) -> Any:
    """The hyperparameters of a method, tiny, with some of them `chosen`."""
    kind = METHODS[name].hyper
    fields = {field.name for field in dataclasses.fields(kind)}
    small = {**SMALL, **(SMALL_HYPERNET if "hidden" in fields else {}), **(GENTLE if METHODS[name].unlabelled else {})}
    for particular in (SURE, MILD, QUICK, EARLY):
        small |= particular.get(name, {})
    return kind(**{key: value for key, value in small.items() if key in fields} | chosen)


def build(
    name: str, federation: Federation, model: str | Model = "dense", devices: int = 1, /, **chosen: Any
) -> Method:
    """The method of that name on a toy model, or on a given one."""
    execution = Execution(devices=devices)
    network = tiny_model(model, name) if isinstance(model, str) else model
    setup = Setup(network, len(federation.ids), rounds=3, execution=execution, domains=DOMAINS)
    return METHODS[name].build(setup, small_hyper(name, **chosen))


def select_rates(changed: Any) -> Any:
    """ATP's rates among what an objective changed."""
    return {name: tree for name, tree in changed.items() if name == RATES}


def poisonable(objective: Objective) -> Objective:
    """The objective, NaN for a batch in which there is the image of `poison`."""

    def poisoned(variables: Any, batch: Batch, key: jax.Array, context: Context) -> Any:
        loss, rest = objective(variables, batch, key, context)
        bad = jnp.all(batch.inputs > 0.99, axis=(1, 2, 3))
        factor = jnp.where(jnp.any(bad & (batch.mask > 0)), jnp.nan, 1.0)
        # ATP's rates are trained in what an objective changes, not by its gradient.
        return loss * factor, {**rest, **jax.tree.map(lambda rate: rate * factor, select_rates(rest))}

    return poisoned


def poison(federation: Federation, client: int) -> Federation:
    """The federation with one image of one client that is `POISON` all over."""
    images = np.array(federation.inputs)
    images[np.asarray(federation.train.places)[client, 0]] = POISON
    return federation._replace(inputs=jax.device_put(images))


class Case(NamedTuple):
    """A method with what it trains on and its compiled round (which uses up the state it is given).

    traces: one entry for each time `method.finish` is traced.
    """

    method: Method
    federation: Federation
    plan: RoundPlan
    round: jax.stages.Wrapped
    traces: list[None]

    @property
    def everyone(self) -> list[int]:
        """The positions of all clients that train."""
        return list(range(len(self.federation.ids)))

    def start(self, seed: int = 0, federation: Federation | None = None) -> State:
        """A fresh state."""
        return INIT(self.method, federation or self.federation, seed)

    def advance(self, rounds: int, seed: int = 0, federation: Federation | None = None) -> State:
        """The state after so many rounds from a fresh one."""
        state = self.start(seed, federation)
        for _ in range(rounds):
            state, _ = self.round(state, federation or self.federation)
        return state


INIT = jax.jit(init_state, static_argnums=0)


def make_plan(
    axis: str = "map",
    drop_last: bool = False,
    per_round: int = 0,
    epochs: int = 2,
    drop_nonfinite: bool = False,
    devices: int = 1,
) -> RoundPlan:
    """A plan with small batches."""
    return RoundPlan(Batching(epochs, BATCH, drop_last), per_round, Execution(axis, 2, devices), drop_nonfinite)


@functools.cache
def shared_method(name: str, model: str = "dense", devices: int = 1) -> Method:
    """The method on the standard federation, its objective `poisonable`."""
    method = build(name, toy_federation(), model, devices)
    return method._replace(objective=poisonable(method.objective))


def make_case(method: Method, federation: Federation | None = None, plan: RoundPlan | None = None) -> Case:
    """A method on a federation, by default the standard one, not shared."""
    federation, plan = federation or toy_federation(), plan or make_plan()
    traces: list[None] = []

    def finish(*args: Any) -> Any:
        traces.append(None)
        return method.finish(*args)

    trained = pool(federation) if method.pooled else federation
    return Case(method, trained, plan, compile_round(method._replace(finish=finish), plan), traces)


@functools.cache
def shared_case(name: str, model: str = "dense", plan: RoundPlan | None = None) -> Case:
    """`shared_method` on the standard federation, compiled once for all tests."""
    method = shared_method(name, model, plan.execution.devices if plan else 1)
    return make_case(method, toy_federation(lengths_for(name)), plan)


def round_info(participants: Iterable[int], **others: Any) -> RoundInfo:
    """The diagnostics of a round in which nothing happened to these clients."""
    who = on_device(list(participants))
    one, yes = (on_device(np.ones(len(who)), kind) for kind in (np.float32, np.bool_))
    return RoundInfo(who, one, one, yes, on_device(True, np.bool_), {})._replace(**others)


def check_recordable(info: RoundInfo, clients: int) -> None:
    """The coefficients a method reports become lists of numbers by path, one number (or row of numbers) per client."""
    record = round_record(1, jax.device_get(info))
    shown = {key: value for key, value in record.items() if key.startswith("coefficients/")}
    assert shown
    for values in shown.values():
        assert len(values) == clients
        assert np.isfinite(np.asarray(values, np.float64)).all()


def copy(tree: PyTree) -> PyTree:
    """Fresh buffers: a compiled round uses up those of its state."""
    return by_numpy(np.array, tree)


def row(tree: PyTree, client: int | Sequence[int]) -> PyTree:
    """One client's row of stacked state, or the rows of some."""
    take = np.asarray(client)
    return by_numpy(lambda leaf: leaf[take], tree)


def by_numpy(function: Callable[..., Any], *trees: PyTree) -> PyTree:
    """`function` of arrays, leaf by leaf, without the program that JAX would compile for every shape."""
    return jax.tree.map(lambda *leaves: jax.device_put(function(*map(np.asarray, leaves))), *trees)


def precisions(jaxpr: Any) -> Iterator[Any]:
    """The precision of every matrix product of a jaxpr, those inside its loops and branches included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"]
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda value: hasattr(value, "eqns")):
            if hasattr(inner, "eqns"):
                yield from precisions(getattr(inner, "jaxpr", inner))


def are_exact(jaxpr: Any) -> bool:
    """Whether a jaxpr has matrix products, all of them in full precision."""
    found = set(precisions(jaxpr))
    return found == {(jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)}


def close(left: PyTree, right: PyTree, *, rtol: float = 2e-4, atol: float = 2e-6) -> None:
    """Same structure, and equal up to the rounding of a few dozen float32 steps."""
    chex.assert_trees_all_close(left, right, rtol=rtol, atol=atol)


def tolerance(name: str) -> dict[str, float]:
    """How close two runs of a method come, for `close`.

    Self-supervised networks have one or two BatchNorms, and each divides rounding by the spread of few samples.
    """
    return {"rtol": 2e-3, "atol": 2e-4} if METHODS[name].unlabelled else {}


def flat(tree: PyTree) -> np.ndarray:
    """All numbers of a tree as one float64 vector."""
    leaves = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves) if leaves else np.zeros(0)
