"""The fate of every variable: declared for every method on every model, and kept when a value goes through a round."""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Context, Method, Model, PyTree, ServerStep, Setup, Trained
from fdgjax.data.federation import Rows
from fdgjax.engine.local import LocalData, samples_of
from fdgjax.engine.traffic import traffic
from fdgjax.methods import METHODS
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.models.client_model import as_model
from fdgjax.utils.variables import flatten, label_table
from tests.marks import mostly_slow
from tests.shallow import shallow
from tests.toys import BATCH, DOMAINS, POOLED, build, toy_federation

ALL = sorted(METHODS)
OWN = ("fdse", "fedavg", "feddg_ga", "fedema", "fedgala", "hfedf", "lgfedavg", "local", "pfedhn", "scaffold", "uap")
"""With labels, rules or what is remembered of their own."""
ROWS = 4
IMAGE = (64, 64, 3)


class Path:
    """A variable's path, taken apart independently of the package."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts = path.split("/")
        self.statistic = self.parts[0] == "batch_stats"
        self.module = self.parts[-2] if len(self.parts) > 2 else ""
        self.predictor = "predictor" in path
        self.batch_norm = self.module.startswith("bn")
        self.last_layer = len(self.parts) == 3 and self.module in ("head", "linear_2")


def shared(_: Path) -> str:
    return "shared"


FATES: Mapping[str, Callable[[Path], str]] = {
    "partialfed": lambda path: "local" if path.path == "params/policy" else "shared",
    **dict.fromkeys(("groupdro", "fishr"), lambda path: "local" if path.parts[0] == "memory" else "shared"),
    "fedadg": lambda path: (
        "local" if path.path.startswith(("params/adversary/pro", "params/adversary/dis")) else "shared"
    ),
    **dict.fromkeys(("fedproto", "local"), lambda path: "local"),
    **dict.fromkeys(("hfedf", "pfedhn"), lambda path: "local" if path.statistic else "personal"),
    **dict.fromkeys(
        ("cbafed", "fedbn", "gperxan", "semifl", "ssfl", "uap"), lambda path: "local" if path.batch_norm else "shared"
    ),
    "fdse": lambda path: (
        "shared" if path.module not in ("dse", "bn_dse") else "local" if path.statistic else "personal"
    ),
    "rscfed": lambda path: "local" if path.batch_norm or path.parts[0] == "teacher" else "shared",
    "fedmoco": lambda path: "local" if path.parts[0] in ("target", "queue") else "shared",
    "fedbyol": lambda path: "local" if path.parts[0] == "target" or path.predictor else "shared",
    "fedema": lambda path: "local" if path.parts[0] == "target" else "shared",
    "fedsimsiam": lambda path: "local" if path.predictor else "shared",
    "ditto": lambda path: "shared" if path.parts[1] == "global" else "local",
    "lgfedavg": lambda path: (
        "shared" if path.module in ("head", "linear_2") and path.parts[-3] == "params" else "local"
    ),
}
"""The fate of each variable, by method; one that is not named shares all."""


FIXED: Mapping[str, Callable[[Path], bool]] = {"fedclip": lambda path: not path.path.startswith("params/adapter/")}
"""Shared variables that no client may change, by method."""

LOOKING = ("fdse", "fedadg", "fedclip", "fedlgf", "fishr", "gperxan", "lgfedavg", "uap")
"""The methods that look at the calls of a network's modules, of which a jitted initialisation shows none."""


@functools.cache
def narrow(model: str, unit: str, head: str, jitted: bool) -> Model:
    """A network of the registry, as small as it gets; jitted, it is traced once for all methods."""

    def network(outputs: int) -> nn.Module:
        return shallow(model)(outputs, 1 / 32, UNITS[unit] if unit else None)

    made = as_model(HEADS[head or "linear"](network, 3, 1 / 32), MODELS[model].sample or IMAGE)
    return made._replace(init=jax.jit(made.init)) if jitted else made


REFUSED = {("fedfa", "vit_b8"), ("fdse", "linear"), ("gperxan", "linear")}
"""Networks without convolutional units, and without any."""


def modules() -> Mapping[Any, str]:
    """A network of each module class: those of a class are made of the same layers, however many."""
    classes = {name: getattr(entry.module, "func", entry.module) for name, entry in MODELS.items()}
    return {module: next(name for name in MODELS if classes[name] is module) for module in classes.values()}


def pairs() -> list[tuple[str, str]]:
    """Every method on the first network, every network with the methods whose labels follow from modules or paths."""
    first, *others = modules().values()
    told = [*((name, first) for name in ALL), *itertools.product((*LOOKING, "fedbn", "hfedf"), others)]
    return [pair for pair in told if pair not in REFUSED]


@pytest.mark.parametrize(("name", "model"), mostly_slow(pairs(), pairs()[: len(ALL)]))
def test_the_label_table_of_every_method_on_every_kind_of_model(name: str, model: str) -> None:
    entry = METHODS[name]
    network = narrow(model, entry.unit, entry.head, name not in LOOKING)
    method = entry.build(Setup(network, ROWS, 3, domains=DOMAINS), entry.hyper())
    of_table = MODELS[model].sample
    count = len(toy_federation().labels)
    inputs: Any = jax.ShapeDtypeStruct((count, *(of_table or IMAGE)), jnp.float32 if of_table else jnp.uint8)
    table = label_table(traffic(method, toy_federation()._replace(inputs=inputs)).received, method.label)
    assert table == {path: FATES.get(name, shared)(Path(path)) for path in table}


def marked(received: PyTree, labels: Mapping[str, str], marks: Mapping[str, jax.Array]) -> PyTree:
    """What a client has after a training that adds a mark to every variable, by its label."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + marks[labels[jax.tree_util.keystr(path, simple=True, separator="/")]], received
    )


EVERYTHING: Mapping[str, Mapping[str, float]] = {"semifl": {"threshold": 0.0}, "cbafed": {"threshold": -2.0}}
"""Where only confident guesses are used: all of them, so that there is something to train on."""


class Outcome(NamedTuple):
    """A round in which clients' trained variables are what they received plus marks, `[clients]` for each label."""

    labels: Mapping[str, str]
    before: PyTree
    messages: PyTree
    after: PyTree

    def of(self, label: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Before and after, `[clients, ...]`, of the variables with a label."""
        before, after = flatten(self.before), flatten(self.after)
        return {p: (np.asarray(before[p]), np.asarray(after[p])) for p in before if self.labels[p] == label}


def marking(method: Method) -> Callable[[Mapping[str, np.ndarray]], Outcome]:
    """The round as a function of the marks, compiled once."""
    federation = toy_federation()
    labels = label_table(traffic(method, federation).received, method.label)
    receive = jax.vmap(lambda s, c: method.start(method.send(s, c), c), in_axes=(None, 0), axis_size=ROWS)

    def one(server: PyTree, client: PyTree, received: PyTree, marks: Mapping[str, jax.Array], row: Rows) -> PyTree:
        context = Context(method.send(server, client), client, received, jnp.int32(0))
        if method.prepare:
            notes = method.prepare(context, samples_of(LocalData(federation, *row), BATCH)).aux
            context = context._replace(aux=notes)
        optimizer = method.optimizer.init(received["params"])
        after = Trained(marked(received, labels, marks), optimizer, jnp.float32(0), jnp.int32(3))
        return method.finish(context, after)

    @jax.jit
    def run(marks: Mapping[str, jax.Array]) -> tuple[PyTree, PyTree, PyTree]:
        server, clients = method.init(jax.random.key(0), federation)
        before = receive(server, clients)
        each = jax.vmap(one, in_axes=(None, 0, 0, 0, 0))
        messages, kept = each(server, clients, before, marks, federation.train)
        aggregate, _ = method.aggregate(server, kept, messages, jnp.ones(ROWS))
        after = receive(*method.update(server, kept, aggregate, ServerStep(jnp.int32(0), jax.random.key(0))))
        return before, messages, after

    return lambda marks: Outcome(labels, *run({label: jnp.asarray(mark, jnp.float32) for label, mark in marks.items()}))


@functools.cache
def outcomes(name: str, model: str) -> tuple[Outcome, Outcome]:
    """Two rounds that differ only in what local variables became."""
    method = build(name, toy_federation(), model, **EVERYTHING.get(name, {}))
    same = np.full(ROWS, 0.25)
    after = marking(method)
    run = lambda local: after({"shared": same, "personal": same, "local": local})  # noqa: E731
    return run(np.arange(ROWS) + 0.5), run(10.0 * np.arange(ROWS) - 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow([name for name in ALL if name not in POOLED], OWN))
def test_a_marked_value_goes_where_its_label_says(name: str) -> None:
    # With BatchNorm there are variables of every kind.
    one, other = outcomes(name, "norm")
    chex.assert_trees_all_equal(one.messages, other.messages)
    for outcome, marks in ((one, np.arange(ROWS) + 0.5), (other, 10.0 * np.arange(ROWS) - 3)):
        for path, (before, after) in outcome.of("local").items():
            wanted = before + marks.reshape(-1, *[1] * (before.ndim - 1)).astype(np.float32)
            np.testing.assert_array_equal(after, wanted, err_msg=path)
    fixed = FIXED.get(name, lambda _: False)
    for path, (before, after) in one.of("shared").items():
        np.testing.assert_array_equal(after, np.broadcast_to(after[:1], after.shape), err_msg=path)
        assert (after == before).all() if fixed(Path(path)) else (after != before).all(), f"{path} is stale, or moves"
    for path, (before, after) in one.of("personal").items():
        assert (after != before).any(), f"{path} is stale"
