"""ATP's laws: FedAvg without rates, one phase after the other, rates against plain NumPy in float64, and adaptation by
them at all scopes."""

import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Model, Variables
from fdgjax.data.federation import Rows
from fdgjax.engine.loops import dynamic_loop
from fdgjax.evaluation.adaptation import adapt, count_adapted
from fdgjax.methods.atp import ATP, STREAM, moved, of_network, trained_rates, unsupervised_step
from fdgjax.methods.parts.adaptations import SCOPES
from fdgjax.utils.variables import flatten, unflatten
from tests.toys import build, close, copy, flat, make_case, shared_case, tiny_model, toy_federation

pytestmark = pytest.mark.slow

Numbers = dict[str, np.ndarray]
UNSEEN, SIZE = 8, 4
RATE = 0.3


@functools.cache
def model() -> Model:
    return tiny_model("norm")


@functools.cache
def start() -> Variables:
    """Statistics that are not those of any data here, and rates that are not zero."""
    fresh = model().init(jax.random.key(0))
    network = {**fresh, "batch_stats": jax.tree.map(lambda leaf: leaf * 1.5 + 0.3, fresh["batch_stats"])}
    rates = {path: jnp.float32(0.02 * (place - 3)) for place, path in enumerate(flatten(network))}
    return {**network, "rates": unflatten(rates)}


def batch_of(places: np.ndarray, mask: np.ndarray) -> Batch:
    data = toy_federation()
    inputs = jnp.asarray(np.asarray(data.inputs)[places] / 127.5 - 1, jnp.float32)
    return Batch(inputs, data.labels[places], jnp.asarray(mask, jnp.float32))


BATCH = batch_of(np.arange(6), np.ones(6))


def forward(w: Numbers, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and BatchNorm's input, of the toy network in evaluation."""
    before = x.reshape(len(x), -1) @ w["params/linear_1/kernel"] + w["params/linear_1/bias"]
    scaled = (before - w["batch_stats/norm/mean"]) / np.sqrt(w["batch_stats/norm/var"] + 1e-5)
    after = np.maximum(scaled * w["params/norm/scale"] + w["params/norm/bias"], 0)
    return after @ w["params/linear_2/kernel"] + w["params/linear_2/bias"], before


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def slopes(function: Callable[[Numbers], float], at: Numbers, h: float = 1e-5) -> Numbers:
    """The gradient by central differences, of all entries of all arrays."""
    found = {path: np.zeros_like(leaf) for path, leaf in at.items()}
    for path, leaf in at.items():
        for place in np.ndindex(leaf.shape):
            ends = []
            for sign in (1, -1):
                there = leaf.copy()
                there[place] += sign * h
                ends.append(function({**at, path: there}))
            found[path][place] = (ends[0] - ends[1]) / (2 * h)
    return found


def step_by_numpy(w: Numbers, x: np.ndarray) -> Numbers:
    def uncertainty(params: Numbers) -> float:
        log_p = log_softmax(forward({**w, **params}, x)[0])
        return float(-(np.exp(log_p) * log_p).sum(axis=1).mean())

    params = {path: leaf for path, leaf in w.items() if path.startswith("params/")}
    gradient = slopes(uncertainty, params)
    before = forward(w, x)[1]
    mean, var = before.mean(axis=0), before.var(axis=0)
    return {path: -leaf for path, leaf in gradient.items()} | {
        "batch_stats/norm/mean": mean - w["batch_stats/norm/mean"],
        "batch_stats/norm/var": var - w["batch_stats/norm/var"],
    }


@functools.cache
def by_numpy() -> tuple[Numbers, Numbers, Numbers]:
    """The step, the rates, and the loss's gradient over the rates."""
    w = {path: np.asarray(leaf, np.float64) for path, leaf in flatten(of_network(start())).items()}
    rates = {path: np.asarray(leaf, np.float64) for path, leaf in flatten(start()["rates"]).items()}
    x, labels = np.asarray(BATCH.inputs, np.float64), np.asarray(BATCH.labels)
    step = step_by_numpy(w, x)

    def loss(rates: Numbers) -> float:
        log_p = log_softmax(forward({path: w[path] + rates[path] * step[path] for path in w}, x)[0])
        return float(-log_p[np.arange(len(x)), labels].mean())

    return step, rates, slopes(loss, rates)


@pytest.mark.parametrize(
    ("norm", "divisor"), [("root", np.sqrt), ("size", lambda size: size), ("none", lambda size: 1)]
)
def test_the_step_and_the_new_rates_are_those_of_plain_numpy(norm: str, divisor: Callable[[int], float]) -> None:
    step, rates, slope = by_numpy()
    found = flatten(unsupervised_step(model(), of_network(start()), BATCH))
    assert found.keys() == step.keys()
    for path, wanted in step.items():
        np.testing.assert_allclose(found[path], wanted, rtol=1e-3, atol=1e-6, err_msg=path)
    _, after = trained_rates(model(), start(), BATCH, ATP(rate_learning_rate=RATE, rate_norm=norm))
    for path, new in flatten(after).items():
        expected = rates[path] - RATE * slope[path] / divisor(step[path].size)
        np.testing.assert_allclose(new, expected, rtol=1e-3, atol=1e-5, err_msg=path)
    assert all(abs(slope[path]) > 1e-4 for path in ("batch_stats/norm/mean", "params/linear_2/kernel"))


def test_what_fills_up_a_batch_changes_neither_step_nor_rates() -> None:
    filled = batch_of(np.array([0, 1, 2, 3, 4, 5, 9, 10]), np.array([1.0] * 6 + [0.0] * 2))
    close(*(unsupervised_step(model(), of_network(start()), batch) for batch in (BATCH, filled)), atol=1e-5)
    close(*(trained_rates(model(), start(), batch, ATP()) for batch in (BATCH, filled)), atol=1e-5)


def test_a_small_step_of_the_rates_lowers_the_loss_after_adaptation() -> None:
    h = ATP(rate_learning_rate=0.05)
    before, rates = trained_rates(model(), start(), BATCH, h)
    after, _ = trained_rates(model(), {**start(), "rates": rates}, BATCH, h)
    assert after < before


@pytest.mark.slow
def test_a_variance_is_never_negative() -> None:
    network = of_network(start())
    step = unsupervised_step(model(), network, BATCH)
    rates = jax.tree.map(lambda leaf: jnp.float32(-50.0), start()["rates"])
    for sign in (1.0, -1.0):
        found = flatten(moved(network, jax.tree.map(lambda rate, sign=sign: sign * rate, rates), step))
        assert np.all(np.asarray(found["batch_stats/norm/var"]) >= 0)


@pytest.mark.parametrize(
    "chosen", [{"beside": True, "rate_learning_rate": 0.0}, {"rate_share": 0.0}], ids=["no rate", "no round"]
)
def test_without_rates_it_is_fedavg_and_nothing_adapts(chosen: Mapping[str, Any]) -> None:
    fedavg = shared_case("fedavg", "norm").advance(2).server.variables
    case = make_case(build("atp", toy_federation(), "norm", **chosen))
    server = case.advance(2).server
    close(of_network(server.variables), fedavg)
    assert not np.any(flat(server.variables["rates"]))
    trained = jax.tree.map(lambda leaf: leaf[0], case.method.unseen(server, ()))
    close(adapted(case.method, trained), trained, rtol=0, atol=0)


def test_the_first_rounds_train_the_model_alone_and_the_last_the_rates_alone() -> None:
    # Of three rounds the last: neither momentum, Adam at the server, nor weight decay moves the model then.
    chosen = {"client_optimizer": "sgd", "client_momentum": 0.9, "client_weight_decay": 0.1, "keep_optimizer": True}
    method = build("atp", toy_federation(), "norm", server_optimizer="adam", rate_share=0.5, **chosen)
    case = make_case(method)
    state = case.advance(2)
    model_then, rates_then = (copy(part(state.server.variables)) for part in (of_network, lambda v: v["rates"]))
    assert not np.any(flat(rates_then))
    optimizers = copy((state.optimizers, state.server.optimizer))
    state, info = case.round(state, case.federation)
    close(of_network(state.server.variables), model_then, rtol=0, atol=0)
    close((state.optimizers, state.server.optimizer), optimizers, rtol=0, atol=0)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(state.server.variables["rates"]))
    assert np.all(np.isfinite(info.loss))


def adapted(method: Any, variables: Variables, batch_size: int = SIZE, places: np.ndarray | None = None) -> Variables:
    federation = toy_federation(unseen=UNSEEN)
    rows: Rows = jax.tree.map(lambda leaf: leaf[0], federation.target)
    chosen = rows if places is None else Rows(jnp.asarray(places), jnp.int32(len(places)))
    how = {"batch_size": batch_size, "repeat": dynamic_loop, "round_": jnp.int32(3), "key": jax.random.key(1)}
    return adapt(method.adapt, variables, chosen, federation=federation, **how)


def target() -> np.ndarray:
    return np.asarray(toy_federation(unseen=UNSEEN).target.places)[0]


def test_a_domain_takes_the_mean_of_its_minibatches_steps() -> None:
    method = build("atp", toy_federation(), "norm")
    whole = adapted(method, start(), batch_size=UNSEEN)
    step = unsupervised_step(model(), of_network(start()), batch_of_target(target()))
    close(whole, {**start(), **moved(of_network(start()), start()["rates"], step)}, atol=1e-5)
    parts = adapted(method, start(), batch_size=SIZE)
    # The entropy's gradient and the mean are sums over samples; variances within smaller batches are others.
    close(parts["params"], whole["params"], atol=1e-5)
    close(parts["batch_stats"]["norm"]["mean"], whole["batch_stats"]["norm"]["mean"], atol=1e-5)


def batch_of_target(places: np.ndarray) -> Batch:
    data = toy_federation(unseen=UNSEEN)
    inputs = jnp.asarray(np.asarray(data.inputs)[places] / 127.5 - 1, jnp.float32)
    return Batch(inputs, jnp.zeros(len(places), jnp.int32), jnp.ones(len(places)))


def test_a_stream_ends_with_the_mean_of_the_models_of_its_batches_or_with_the_last() -> None:
    method = build("atp", toy_federation(), "norm")
    halves = target()[:SIZE], target()[SIZE:]
    first, second = (adapted(method, start(), places=half) for half in halves)
    stream = {"origin": of_network(start()), "seen": jnp.zeros(())}
    latest, last = {**start(), STREAM: stream}, start()
    for half, wanted in zip(halves, (first, jax.tree.map(lambda a, b: (a + b) / 2, first, second)), strict=True):
        latest, last = (adapted(method, one, places=half) for one in (latest, last))
        close(of_network(latest), of_network(wanted), atol=1e-5)
    close(last, adapted(method, first, places=halves[1]), atol=1e-5)
    assert not np.allclose(flat(of_network(last)), flat(of_network(latest)), rtol=0, atol=1e-4)


def test_models_for_unseen_domains_adapt_at_every_scope_and_carry_the_trained_one_only_to_average() -> None:
    federation = toy_federation(unseen=UNSEEN)
    rows: Rows = jax.tree.map(lambda leaf: leaf[0], federation.target)
    for online, carries in (("last", False), ("average", True)):
        method = build("atp", federation, "norm", online=online)
        server, clients = method.init(jax.random.key(0), federation)
        models = method.unseen(server, clients)
        assert (STREAM in models) == carries
        one = jax.tree.map(lambda leaf: leaf[0], models)
        for scope in SCOPES.values():
            counted = count_adapted(
                partial(adapted_rows, method),
                lambda variables, rows: {"samples": rows.length, "sum": jnp.sum(variables["params"]["norm"]["bias"])},
                one,
                rows,
                scope,
                batch_size=SIZE,
                repeat=dynamic_loop,
            )
            assert int(counted["samples"]) == UNSEEN


def adapted_rows(method: Any, variables: Variables, rows: Rows) -> Variables:
    how = {"batch_size": SIZE, "repeat": dynamic_loop, "round_": jnp.int32(3), "key": jax.random.key(1)}
    return adapt(method.adapt, variables, rows, federation=toy_federation(unseen=UNSEEN), **how)
