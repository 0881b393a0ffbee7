"""Clipping holds for any numbers, and the noise of a round is the noise that is accounted for."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fdgjax.contract import Batch, Context, Method, Model, PyTree, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine import State, compile_round
from fdgjax.engine.local import Batching, LocalData, LocalTraining, train_locally
from fdgjax.engine.privacy.dp_sgd import train_privately
from fdgjax.engine.privacy.noise import Privacy, clip_norm
from fdgjax.methods.parts.optimizers import scale_by_progress
from tests.toy_models import frozen_model
from tests.toys import BATCH, INIT, LENGTHS, build, by_numpy, close, flat, make_plan, reorder, toy_federation

CLIP, NOISE = 0.7, 1.3
RATE_1 = optax.sgd(1.0)
NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=False)
clipped = jax.jit(clip_norm)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.float32, (3, 2), elements=NUMBERS), arrays.arrays(np.float32, 2, elements=NUMBERS))
def test_no_update_is_longer_than_the_clip(one: np.ndarray, other: np.ndarray) -> None:
    tree = {"a": one, "b": other}
    after, before = flat(clipped(tree, CLIP)), flat(tree)
    length = np.linalg.norm(before) if np.isfinite(before).all() else np.inf
    assert np.linalg.norm(after) <= CLIP * (1 + 1e-5)
    if length < CLIP * (1 - 1e-5):
        np.testing.assert_array_equal(after, before)
    elif np.isfinite(length):
        np.testing.assert_allclose(after, before * (CLIP / length), rtol=1e-4, atol=1e-6)
    else:
        assert not after.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_number_of_many_that_is_not_finite_hides_all(bad: float) -> None:
    leaf = np.ones(20_000, np.float32)
    leaf[123] = bad
    assert not flat(clipped({"a": leaf, "b": np.ones(3, np.float32)}, CLIP)).any()


def without_gradient(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> Any:
    del key, context
    return 0 * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(variables)) + 0 * jnp.sum(batch.inputs), {}


@functools.cache
def still(model: str | Model = "wide") -> Method:
    """FedAvg whose clients find nothing to learn: what moves is noise."""
    chosen = {"weighting": "uniform", "client_weight_decay": 0.0, "client_momentum": 0.0, "client_learning_rate": 0.5}
    return build("fedavg", toy_federation(), model, **chosen)._replace(objective=without_gradient)


@functools.cache
def still_round(privacy: Privacy, per_round: int = 0) -> Callable[[State, Federation], Any]:
    return compile_round(still(), make_plan(per_round=per_round, epochs=1)._replace(privacy=privacy))


def moves(privacy: Privacy, rounds: int, per_round: int = 0) -> np.ndarray:
    """How far the server's numbers move in each round, `[rounds, numbers]`."""
    federation = toy_federation()
    state = INIT(still(), federation, 0)
    found = [flat(state.server.variables)]
    for _ in range(rounds):
        state, _ = still_round(privacy, per_round)(state, federation)
        found.append(flat(state.server.variables))
    return np.diff(found, axis=0)


def check_gaussian(values: np.ndarray, deviation: float) -> None:
    """Mean and variance of independent draws of N(0, deviation^2) are within six of their own deviations, and no two
    rows are alike."""
    many = values.size
    assert abs(values.mean()) < 6 * deviation / many**0.5
    assert abs((values**2).mean() / deviation**2 - 1) < 6 * (2 / many) ** 0.5
    correlated = np.corrcoef(values)[~np.eye(len(values), dtype=bool)]
    assert np.abs(correlated).max() < 6 / values.shape[1] ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "per_round"), [("server", 0), ("clients", 0), pytest.param("server", 3, marks=pytest.mark.slow)]
)
def test_the_noise_of_a_round_is_what_was_accounted_for(where: str, per_round: int) -> None:
    taking_part = per_round or len(LENGTHS)
    found = moves(Privacy(CLIP, NOISE, where=where), 12, per_round)
    check_gaussian(found, NOISE * CLIP / taking_part)


@pytest.mark.parametrize("where", ["server", "clients"])
def test_frozen_statistics_have_no_noise(where: str) -> None:
    federation, plan = toy_federation(), make_plan(epochs=1)._replace(privacy=Privacy(CLIP, NOISE, where=where))
    method = still(frozen_model())
    after, _ = compile_round(method, plan)(INIT(method, federation, 0), federation)
    before = INIT(method, federation, 0)
    moved = jax.tree.map(lambda new, old: np.asarray(new != old), after.server.variables, before.server.variables)
    assert flat(moved["params"]).all()
    assert not flat(moved["batch_stats"]).any()


@pytest.mark.slow
def test_the_noise_of_samples_is_what_was_accounted_for() -> None:
    found = moves(Privacy(CLIP, NOISE, samples=True), 12)
    # SGD takes ceil(N / B) steps, each against a noise of z C over the expected batch, min(B, N).
    variance = sum(-(-n // BATCH) * (0.5 * NOISE * CLIP / min(BATCH, n)) ** 2 for n in LENGTHS) / len(LENGTHS) ** 2
    check_gaussian(found, variance**0.5)


@pytest.mark.slow
def test_a_client_s_noise_does_not_depend_on_its_place() -> None:
    federation, round_ = toy_federation(), still_round(Privacy(CLIP, NOISE, where="clients"))
    backwards = reorder(federation, [3, 2, 1, 0])
    ends = [round_(INIT(still(), each, 0), each)[0].server for each in (federation, backwards)]
    close(*ends)


@pytest.mark.slow
def test_the_server_moves_by_the_mean_of_the_clipped_updates() -> None:
    federation, tiny = toy_federation(), 1e-9
    method = build("fedavg", federation, weighting="uniform", client_momentum=0.0)
    seen: list[PyTree] = []

    def aggregate(server: PyTree, clients: PyTree, messages: PyTree, weights: jax.Array) -> PyTree:
        jax.debug.callback(lambda update: seen.append(update), messages.update, ordered=True)
        return method.aggregate(server, clients, messages, weights)

    watched = method._replace(aggregate=aggregate)
    for privacy in (None, Privacy(0.05, tiny)):
        compile_round(watched, make_plan(epochs=1)._replace(privacy=privacy))(INIT(method, federation, 0), federation)
    jax.effects_barrier()
    plain, private = (np.stack([flat(by_numpy(lambda leaf, i=i: leaf[i], one)) for i in range(4)]) for one in seen)
    lengths = np.linalg.norm(plain, axis=1)
    assert (lengths > 0.05).any()
    expected = (plain * np.minimum(1, 0.05 / lengths)[:, None]).mean(axis=0)
    for each in private:
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-6)


def of_client(place: int, objective: Any, batching: Batching, privacy: Privacy | None, optimizer: Any = RATE_1) -> Any:
    """One client's training by gradient descent from the same variables, private or not."""
    method, federation = build("fedavg", toy_federation()), toy_federation()

    @jax.jit
    def train(federation: Federation) -> Any:
        server, clients = method.init(jax.random.key(0), federation)
        client = jax.tree.map(lambda leaf: leaf[0], clients)
        received = method.start(method.send(server, client), client)
        context = Context(received, (), received, jnp.zeros((), jnp.int32))
        training = LocalTraining(objective or method.objective, optimizer, batching)
        data = LocalData(federation, federation.train.places[place], federation.train.length[place])
        begin, key = optimizer.init(received["params"]), jax.random.key(1)
        if privacy is None:
            return train_locally(training, data, context, begin, key), received
        private = train_privately(training, data, context, begin, key, noise_key=jax.random.key(2), privacy=privacy)
        return private, received

    return train(federation)


@pytest.mark.slow
def test_without_noise_and_clipping_it_is_gradient_descent_on_the_whole_client() -> None:
    # A batch as large as the client takes every sample in every step, and none of its padding.
    batching, slower = (
        Batching(3, 9, False),
        optax.chain(optax.sgd(1.0), scale_by_progress(lambda done: 1 / (1 + done))),
    )
    (plain, _), (private, _) = (
        of_client(1, None, batching, how, slower) for how in (None, Privacy(1e9, 0.0, samples=True))
    )
    close(plain.variables, private.variables)
    np.testing.assert_allclose(plain.loss, private.loss, rtol=1e-5)
    assert int(plain.steps) == int(private.steps) == 3


@pytest.mark.slow
def test_each_step_takes_each_sample_with_the_probability_accounted_for() -> None:
    def constant(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> Any:
        del batch, key, context
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(variables)), {}

    # Gradients are alike and clipped to C, so that each sample taken moves the parameters by C / (q N).
    epochs, size, length = 60, 4, 9
    trained, received = of_client(3, constant, Batching(epochs, size, False), Privacy(CLIP, 0.0, samples=True))
    moved = np.linalg.norm(flat(trained.variables) - flat(received))
    taken, steps, rate = moved / (CLIP / size), epochs * -(-length // size), size / length
    spread = (steps * length * rate * (1 - rate)) ** 0.5
    assert abs(taken - steps * size) < 5 * spread
    assert int(trained.steps) == steps
