"""No method that shows more than noise covers runs under privacy: which run, and why the others do not."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from fdgjax.contract import Method, Model
from fdgjax.data.federation import Federation, pool
from fdgjax.engine.dependence import depends
from fdgjax.engine.privacy.leakage import (
    SomeClients,
    client_leaks,
    leaves_to_cover,
    mixes_rows,
    mixes_samples,
    sample_leaks,
    some_clients,
    takes_another_mean,
    why_not,
)
from fdgjax.engine.traffic import traffic
from fdgjax.methods import METHODS
from fdgjax.utils.variables import flatten
from tests.toy_models import frozen_model, tiny_model
from tests.toys import FULL_LENGTHS, build, toy_federation

MORE, STATISTICS = "send more than their updates", "send statistics"
KEPT, ONE_MEAN = "depends on what clients keep", "does not take one mean"
COMPARE = ("fedclip",)
"""Methods whose loss compares the samples of a minibatch: that takes numbers to see, too."""
RULES = ("fedgma",)
"""Methods whose rule looks at each update: that takes numbers to see."""
CLIENTS: dict[str, str] = {
    **dict.fromkeys(
        [
            "afl",
            "cbafed",
            "ccst",
            "fdse",
            "fedccrl",
            "feddg",
            "feddg_ga",
            "fedgala",
            "fediir",
            "fpl",
            "semifl",
            "stablefdg",
        ],
        MORE,
    ),
    **dict.fromkeys(["atp", "fedbyol", "fedema", "fedmoco", "fedsimclr", "fedsimsiam"], STATISTICS),
    "rscfed": "reads what clients keep",
    **dict.fromkeys(["fedfa", "fedheal", "fedomg", "fedproto", "hfedf", "local", "pfedhn"], ONE_MEAN),
    **dict.fromkeys(
        ["central", "coral", "fish", "fishr", "groupdro", "irm", "mixup", "mmd", "vrex"], "pooled at one client"
    ),
    **dict.fromkeys(["gperxan", "lgfedavg"], KEPT),
    **dict.fromkeys(RULES, ""),
    **dict.fromkeys(
        [
            "ditto",
            "fedadg",
            "fedavg",
            "fedbn",
            "feddyn",
            "fedprox",
            "fedsr",
            "moon",
            "partialfed",
            "scaffold",
            "ssfl",
            "uap",
        ],
        "",
    ),
    **dict.fromkeys(["fedasam", "fedclip", "fedlesam", "fedlgf", "fedsam"], ""),
}
"""Why a method cannot protect clients, on a model without BatchNorm, as far as its functions say without numbers."""

BATCHES, PREPARED = "train variables besides parameters", "compute something from their samples"
SAMPLES: dict[str, str] = {
    **dict.fromkeys(
        [
            "afl",
            "cbafed",
            "ccst",
            "fedccrl",
            "feddg",
            "feddg_ga",
            "fediir",
            "fedproto",
            "fpl",
            "semifl",
            "ssfl",
            "stablefdg",
            "uap",
        ],
        PREPARED,
    ),
    **dict.fromkeys(
        ["fdse", "fedbyol", "fedema", "fedfa", "fedgala", "fedmoco", "fedsimclr", "fedsimsiam", "rscfed"], BATCHES
    ),
    **dict.fromkeys(["atp", "fishr", "gperxan", "groupdro"], BATCHES),
    **dict.fromkeys(["coral", "fish", "irm", "mixup", "mmd", "vrex"], "orders its minibatches"),
    "scaffold": "number of steps",
    **dict.fromkeys(
        [
            "central",
            "ditto",
            "fedadg",
            "fedavg",
            "fedbn",
            "feddyn",
            "fedgma",
            "fedheal",
            "fedomg",
            "fedprox",
            "fedsr",
            "hfedf",
        ],
        "",
    ),
    **dict.fromkeys(["lgfedavg", "local", "moon", "partialfed", "pfedhn"], ""),
    **dict.fromkeys(["fedasam", "fedclip", "fedlesam", "fedlgf", "fedsam"], ""),
}
"""The same for samples."""


def of_toys(name: str, model: str | Model = "dense", **chosen: Any) -> tuple[Method, Federation]:
    """A method with equal weights, where it has a choice, and what it trains on."""
    federation, fields = toy_federation(FULL_LENGTHS), {field.name for field in dataclasses.fields(METHODS[name].hyper)}
    method = build(name, federation, model, **({"weighting": "uniform"} if "weighting" in fields else {}) | chosen)
    return method, pool(federation) if method.pooled else federation


def tried(name: str) -> tuple[Method, SomeClients]:
    """A method and some clients to try it at."""
    method, federation = of_toys(name)
    return method, some_clients(method, federation)


def agrees(found: str | None, expected: str) -> bool:
    return expected in found if found and expected else not found and not expected


@pytest.mark.parametrize("name", sorted(METHODS))
def test_who_may_protect_clients(name: str) -> None:
    found = next(client_leaks(*of_toys(name)), None)
    assert name in CLIENTS, f"CLIENTS lacks '{name}'; expected why it cannot protect them, '' if it can; found {found}"
    assert agrees(found, CLIENTS[name]), found


@pytest.mark.parametrize("name", sorted(METHODS))
def test_who_may_protect_samples(name: str) -> None:
    found = next(sample_leaks(*of_toys(name)), None)
    assert name in SAMPLES, f"SAMPLES lacks '{name}'; expected why it cannot protect them, '' if it can; found {found}"
    assert agrees(found, SAMPLES[name]), found


@pytest.mark.slow
def test_a_rule_that_looks_at_each_update_is_no_mean() -> None:
    for name in RULES:
        assert takes_another_mean(*tried(name))
    assert not takes_another_mean(*tried("feddyn"))


@pytest.mark.slow
@pytest.mark.parametrize("samples", [False, True])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_who_may_run_by_all_tests(name: str, samples: bool) -> None:
    by_numbers = {True: dict.fromkeys(COMPARE, "compares samples"), False: dict.fromkeys(RULES, "one by one")}[samples]
    expected = (SAMPLES if samples else CLIENTS)[name] or by_numbers.get(name, "")
    found = why_not(*of_toys(name), samples=samples)
    assert agrees(found, expected), found


@pytest.mark.parametrize(
    ("name", "model", "chosen", "reasons", "expected"),
    [
        ("fedavg", "dense", {"weighting": "samples"}, client_leaks, "method.weighting=uniform"),
        ("fedavg", "dense", {"weighting": "samples"}, sample_leaks, "method.weighting=uniform"),
        ("scaffold", "dense", {"weighting": "samples"}, client_leaks, "or on how many they have"),
        ("fedavg", "norm", {}, client_leaks, STATISTICS),
        ("fedavg", "norm", {}, sample_leaks, BATCHES),
        ("fedbn", "norm", {}, client_leaks, KEPT),
        ("fedbn", "norm", {}, sample_leaks, BATCHES),
        ("hfedf", "dense", {"embeddings": "fixed"}, sample_leaks, "initial state depends on"),
    ],
)
def test_what_leaks_beside_the_noise(name: str, model: str, chosen: Any, reasons: Any, expected: str) -> None:
    found = next(reasons(*of_toys(name, model, **chosen)), "")
    assert expected in found, found


@pytest.mark.parametrize("name", sorted(name for name, reason in SAMPLES.items() if not reason))
def test_frozen_statistics_are_no_reason(name: str) -> None:
    assert not (found := next(sample_leaks(*of_toys(name, frozen_model(name))), None)), found
    # FedCLIP trains an adapter beside the network, which it only evaluates.
    found = next(sample_leaks(*of_toys(name, tiny_model("dense", name, "norm"))), None)
    assert agrees(found, "" if name == "fedclip" else BATCHES), found


@pytest.mark.parametrize("name", sorted(name for name, reason in CLIENTS.items() if not reason))
def test_frozen_statistics_of_clients_are_no_reason(name: str) -> None:
    found = next(client_leaks(*of_toys(name, frozen_model(name))), None)
    # PartialFed's clients mix the server's statistics with their own, which may differ; FedBN's keep their scales.
    assert agrees(found, {"partialfed": STATISTICS, "fedbn": KEPT}.get(name, "")), found


def test_noise_covers_what_depends_on_a_client() -> None:
    """Of FedAvg's update the frozen statistics alone do not; what a client sends of its row, loss or steps does."""
    method, federation = of_toys("fedavg", frozen_model())
    travelling = traffic(method, federation)
    update = travelling.message.update
    of_parameters = [path.startswith("params/") for path in flatten(update)]
    assert 0 < sum(of_parameters) < len(of_parameters)
    assert leaves_to_cover(method, federation, travelling) == of_parameters

    def with_loss(context: Any, trained: Any) -> Any:
        message, row = method.finish(context, trained)
        return message._replace(update=optax.tree.add_scale(message.update, trained.loss, message.update)), row

    assert all(leaves_to_cover(method._replace(finish=with_loss), federation, travelling))
    batches, _ = of_toys("fedavg", "norm")
    assert all(leaves_to_cover(batches, federation, traffic(batches, federation)))


@pytest.mark.slow
@pytest.mark.parametrize("one", ["any", "labels", "domains", "other labels"])
def test_a_loss_that_compares_samples_is_found(one: str) -> None:
    """All of them, or those of one class, of one domain, or of two classes alone."""
    method, federation = of_toys("fedavg")
    compared = {
        "any": lambda batch: True,
        "labels": lambda batch: batch.labels[0] == batch.labels[1],
        "domains": lambda batch: batch.domains[0] == batch.domains[1],
        "other labels": lambda batch: batch.labels[0] != batch.labels[1],
    }[one]

    def compares(variables: Any, batch: Any, key: Any, context: Any) -> Any:
        loss, rest = method.objective(variables, batch, key, context)
        return loss + jnp.where(compared(batch), jnp.mean((batch.inputs[0] - batch.inputs[1]) ** 2), 0.0), rest

    assert not mixes_samples(method, federation)
    assert mixes_samples(method._replace(objective=compares), federation)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weighting", "told", "found"),
    [
        ("uniform", lambda leaf, sum_: leaf, False),
        ("uniform", lambda leaf, sum_: leaf + leaf.mean(axis=0, keepdims=True), True),
        ("uniform", lambda leaf, sum_: leaf + sum_, False),
        ("samples", lambda leaf, sum_: leaf + sum_, True),
    ],
)
def test_a_server_that_tells_clients_what_others_keep_is_found(weighting: str, told: Any, found: bool) -> None:
    """What others keep, or by the weights of a mean how many samples they have; a mean of updates alone is noisy."""
    method, federation = of_toys("ditto", weighting=weighting)

    def update(server: Any, rows: Any, aggregate: Any, step: Any) -> Any:
        sum_ = optax.tree.sum(aggregate)
        server, rows = method.update(server, rows, aggregate, step)
        return server, jax.tree.map(lambda leaf: told(leaf, sum_), rows)

    assert mixes_rows(method._replace(update=update), some_clients(method, federation)) is found


def test_dependence_is_followed_through_programs_that_are_called() -> None:
    @jax.jit
    def swapped(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        return b + 1, a * 2

    one = jnp.ones(2)
    assert depends(lambda a, b: swapped(a, b)[1], one, one)
    assert not depends(lambda a, b: swapped(a, b)[0], one, one)
    assert not depends(lambda a, b: jnp.ones_like(a) + b, one, one)
    assert depends(lambda a, b: jax.lax.fori_loop(0, 3, lambda i, both: (both[0], both[1] + 1), (a, b))[1], one, one)
