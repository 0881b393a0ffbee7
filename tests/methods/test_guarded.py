"""A user's method whose mistakes are said in one line, with the function and what it should return."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fdgjax
from fdgjax.contract import Prepared, PseudoLabels
from fdgjax.methods.fedavg import ENTRY as FEDAVG
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.extend import extend
from fdgjax.objectives import cross_entropy
from fdgjax.utils.errors import UserError
from tests.api.test_python import Flat, arrays

Change = Callable[[Any, Any], dict[str, Any]]


def trained(change: Change, model: Any = Flat) -> Any:
    """A round of FedAvg with some functions changed, `(method, setup) -> {name: function}`."""

    def make(setup: Any, h: FedAvg) -> Any:
        method = fedavg(setup, h)
        return method._replace(**change(method, setup))

    entry = FEDAVG._replace(name="mine", make=make)
    return fdgjax.experiment(entry, data=arrays(), model=model, rounds=1).train()


def each_label(samples: Any, dtype: Any) -> Prepared:
    labels = samples.each(lambda batch: batch.labels.astype(dtype))
    return Prepared(PseudoLabels(labels, jnp.ones(len(labels)), jnp.ones(len(labels))))


MISTAKES: dict[str, tuple[Change, str]] = {
    "one of a pair": (
        lambda m, s: {"aggregate": lambda *a: m.aggregate(*a)[0]},
        "aggregate of method 'mine' made a Message of 2; expected the pair .aggregate, coefficients.",
    ),
    "a state for a pair": (
        lambda m, s: {"update": lambda *a: m.update(*a)[0]},
        "update of method 'mine' made a ServerState of 2; expected the pair .server, clients.",
    ),
    "a branch on a traced number": (
        lambda m, s: {"aggregate": lambda *a: m.aggregate(*a) if a[3].sum() > 1 else 0},
        "aggregate of method 'mine' cannot be run .TracerBoolConversionError.* at test_guarded.py:",
    ),
    "a word in a message": (
        lambda m, s: {"finish": extend(m, message=lambda *a: "mean").finish},
        "finish of method 'mine' made str at .*; expected the pair",
    ),
    "a loss alone": (
        lambda m, s: {"objective": lambda *a: m.objective(*a)[0]},
        "the objective of method 'mine' made float32 ..; expected the pair .loss, changed collections.",
    ),
    "a loss for each sample": (
        lambda m, s: {"objective": lambda v, b, k, c: (jnp.ones(len(b.labels)), {})},
        "the objective of method 'mine' made the loss float32 ",
    ),
    "another collection": (
        lambda m, s: {"objective": lambda *a: (m.objective(*a)[0], {"accuracy": jnp.float32(1)})},
        "made the collection accuracy, which the model does not have",
    ),
    "what is prepared": (
        lambda m, s: {"prepare": lambda context, samples: samples.mask},
        "prepare of method 'mine' made float32 .*; expected fdgjax.contract.Prepared",
    ),
    "classes as numbers": (
        lambda m, s: {"prepare": lambda context, samples: each_label(samples, jnp.float32)},
        "the method's prepare made labels float32 .*; expected int32",
    ),
    "a result for a minibatch": (
        lambda m, s: {"prepare": lambda c, samples: Prepared(aux=samples.each(lambda b: b.inputs.sum(0)))},
        "samples.each's function made float32 .* of a minibatch of 1 samples; expected a result for each",
    ),
    "parameters for variables": (
        lambda m, s: {"unseen": lambda *a: m.unseen(*a)["params"]},
        "unseen of method 'mine' made the collections .*; expected models' variables",
    ),
    "a model without its axis": (
        lambda m, s: {"unseen": lambda *a: jax.tree.map(lambda v: v[0], m.unseen(*a))},
        "unseen of method 'mine' made leaves whose first axes are",
    ),
    "positions that are no integers": (
        lambda m, s: {"order": lambda key, labels, *a: jnp.arange(len(labels), dtype=jnp.float32)},
        "the method's order got positions float32",
    ),
    "no function": (lambda m, s: {"weights": None}, "method 'mine' got NoneType as its weights; expected a function"),
    "an optimiser's maker": (lambda m, s: {"optimizer": dict}, "method 'mine' got type as its optimizer; expected one"),
    "a value for a function": (
        lambda m, s: extend(m, server=jnp.zeros(2))._asdict(),  # type: ignore[arg-type]
        "extend got .* as its server; expected a function",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said_in_one_line(name: str) -> None:
    change, said = MISTAKES[name]
    with pytest.raises(UserError, match=said):
        trained(change)


class Normed(nn.Module):
    """A network with BatchNorm."""

    classes: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        hidden = nn.BatchNorm(use_running_average=not train)(images.reshape(len(images), -1))
        return nn.Dense(self.classes)(hidden)


def test_statistics_are_not_left_out_without_a_word() -> None:
    def forgetful(method: Any, setup: Any) -> dict[str, Any]:
        loss = cross_entropy(setup.model)
        return {"objective": lambda *a: (loss(*a)[0], {})}

    def kept(method: Any, setup: Any) -> dict[str, Any]:
        loss = cross_entropy(setup.model)
        return {"objective": lambda v, *a: (loss(v, *a)[0], {"batch_stats": v["batch_stats"]})}

    with pytest.raises(UserError, match="made no changed collections, and the model changed batch_stats; expected"):
        trained(forgetful, Normed)
    assert trained(kept, Normed).finished
    assert trained(forgetful).finished, "a network without such collections changes none"


def test_no_order_lets_a_client_train_on_anothers_sample() -> None:
    """Padding is the first place of the data, which may be the unseen domain's."""

    def losses(unseen: float, order: Any) -> list[float]:
        sizes = zip((4, 11, 20), arrays().items(), strict=True)
        data = {name: (inputs[:size].astype(np.float32), labels[:size]) for size, (name, (inputs, labels)) in sizes}
        data["one"][0][0] = unseen
        entry = FEDAVG._replace(name="mine", make=lambda setup, h: fedavg(setup, h)._replace(order=order))
        run = fdgjax.experiment(entry, data=data, target="one", model=Flat, rounds=2, data__standardise=False).train()
        return [record["train_loss"] for record in run.records]

    for order in (
        lambda key, labels, domains, count, size: jax.random.permutation(key, len(labels)),
        lambda key, labels, domains, count, size: jnp.full(len(labels), len(labels) - 1),
    ):
        assert losses(0.0, order) == losses(100.0, order)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hyper": FedAvg()}, "got FedAvg.* as its hyper; expected a class such as FedAvg"),
        ({"hyper": fedavg, "make": FedAvg}, "as its hyper; expected a class such as FedAvg"),
        ({"hyper": type("H", (FedAvg,), {"__annotations__": {"q": float}, "q": 1.0})}, "is no dataclass itself"),
        ({"make": 3}, "got 3 as its make; expected a function"),
        ({"needs": ("BatchNorm",)}, "got 'BatchNorm' among its needs"),
    ],
)
def test_an_entry_of_another_form_is_refused_when_it_is_registered(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=f"the Entry of method 'mine' {said}|{said}"):
        fdgjax.register_method(FEDAVG._replace(name="mine", **changes))
