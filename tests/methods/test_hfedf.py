"""hFedF's own laws: Algorithm 4 in plain NumPy, the descent of Algorithm 1, and the kinds of embeddings."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Context, Execution, Method, ServerStep, Trained
from fdgjax.data.federation import Rows
from fdgjax.methods.fedavg import ClientVariables
from fdgjax.methods.parts.embeddings import EmbeddingTraining, autoencoder_embeddings
from fdgjax.methods.parts.generated_models import HyperWeights
from tests.toys import (
    CLIENTS,
    SMALL_HYPERNET,
    Case,
    build,
    close,
    flat,
    make_case,
    make_plan,
    reorder,
    row,
    shared_case,
    toy_federation,
)


def random_like(tree: Any, rng: np.random.Generator) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), tree)


@pytest.mark.slow
@pytest.mark.parametrize("warmup", [0, 1, 3])
@pytest.mark.parametrize("a", [0.75, 0.95])
def test_smoothing_is_algorithm_4(a: float, warmup: int) -> None:
    """An explicit smoothed state, started after the warm-up round, replaces the live one."""
    method = build("hfedf", toy_federation(), ema=a, warmup=warmup)
    rate, decay = SMALL_HYPERNET["server_learning_rate"], SMALL_HYPERNET["server_weight_decay"]
    server, clients = method.init(jax.random.key(0), toy_federation())
    rng, update = np.random.default_rng(0), jax.jit(method.update)
    live, smoothed = flat(server.weights), None
    for t in range(warmup + 4):
        gradient = random_like(server.weights, rng)
        server, _ = update(server, clients, gradient, ServerStep(jnp.asarray(t), jax.random.key(t)))
        live = live - rate * (flat(gradient) + decay * live)
        if t == warmup:
            smoothed = live
        if t > warmup:
            assert smoothed is not None
            smoothed = a * live + (1 - a) * smoothed
            live = smoothed
        np.testing.assert_allclose(flat(server.weights), live, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_servers_adam_decays_weights_as_an_l2_gradient() -> None:
    chosen = {"server_optimizer": "adam", "server_learning_rate": 0.1, "server_weight_decay": 0.1}
    method = build("hfedf", toy_federation(), ema=1.0, **chosen)
    server, clients = method.init(jax.random.key(0), toy_federation())
    rng, x = np.random.default_rng(0), flat(server.weights)
    m = v = np.zeros_like(x)
    update = jax.jit(method.update)
    for t in range(1, 4):
        gradient = random_like(server.weights, rng)
        server, _ = update(server, clients, gradient, ServerStep(jnp.asarray(t), jax.random.key(t)))
        g = flat(gradient) + 0.1 * x
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        x = x - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(flat(server.weights), x, rtol=1e-4, atol=1e-5)


@functools.cache
def gentle(name: str, alignment: str | None = None) -> tuple[Method, Any]:
    """A hypernetwork method with a small step, and its server step with one client's message, jitted."""
    chosen = {"server_learning_rate": 1e-3, "server_weight_decay": 0.0} | (
        {"alignment": alignment} if alignment else {}
    )
    method = build(name, toy_federation(), **chosen)

    @jax.jit
    def step(server: Any, clients: Any, trained: Any) -> tuple[Any, Any]:
        client = jax.tree.map(lambda leaf: leaf[0], clients)
        sent = method.send(server, client)
        received = method.start(sent, client)
        after = Trained(trained, {}, jnp.float32(0), jnp.int32(1))
        message, kept = method.finish(Context(sent, client, received, jnp.int32(0)), after)
        stacked = jax.tree.map(lambda leaf: leaf[None], (message, kept))
        gradient, _ = method.aggregate(server, stacked[1], stacked[0], jnp.ones(1))
        return gradient, method.update(server, clients, gradient, ServerStep(jnp.asarray(0), jax.random.key(0)))[0]

    return method, step


@functools.cache
def first(name: str, seed: int) -> tuple[Any, Any]:
    """The first states of the server and of the clients."""
    state = shared_case(name, plan=make_plan()).start(seed)
    return state.server, state.clients


@functools.cache
def gradient_of_inner_product() -> Any:
    """The gradient of `<h(theta, nu_i), delta>` in the server's weights, jitted."""
    method, _ = gentle("pfedhn")

    def inner(weights: HyperWeights, server: Any, client: Any, delta: Any) -> Any:
        generated = method.predict(server._replace(weights=weights), client)
        return sum(jax.tree.leaves(jax.tree.map(lambda w, d: jnp.sum(w * d), generated, delta)))

    return jax.jit(jax.grad(inner))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "alignment"), [("pfedhn", None), ("hfedf", "separate"), ("hfedf", "joint"), ("hfedf", "none")]
)
@settings(derandomize=True, deadline=None, max_examples=10)
@given(seed=st.integers(0, 999), client=st.integers(0, CLIENTS - 1))
def test_one_server_step_moves_the_model_towards_the_trained_one(
    name: str, alignment: str | None, seed: int, client: int
) -> None:
    method, step = gentle(name, alignment)
    server, clients = first(name, seed)
    alone = jax.tree.map(lambda leaf: leaf[client : client + 1], clients)
    before = method.predict(server, row(alone, 0))
    noise = random_like(before, np.random.default_rng(seed))
    trained = jax.tree.map(lambda w, n: w + 0.1 * n, before, noise)
    _, after = step(server, alone, trained)
    generated = flat(method.predict(after, row(alone, 0)))
    assert np.linalg.norm(generated - flat(trained)) < np.linalg.norm(flat(before) - flat(trained))


@pytest.mark.slow
def test_one_server_step_moves_towards_what_training_found() -> None:
    """The same with real local training: one client, one round, a small server step."""
    federation = toy_federation()
    chosen = {"server_learning_rate": 1e-3, "server_weight_decay": 0.0}
    case = make_case(build("pfedhn", federation, **chosen), reorder(federation, [1]))
    locally = make_case(build("local", federation), reorder(federation, [1]))
    start = case.start()
    before = case.method.predict(start.server, row(start.clients, 0))
    kept = ClientVariables({}, jax.tree.map(lambda leaf: jnp.array(leaf)[None], before))
    beginning = locally.start()._replace(clients=kept)
    trained, _ = locally.round(beginning, locally.federation)
    state, _ = case.round(start, case.federation)
    after = case.method.predict(state.server, row(state.clients, 0))
    target = flat(trained.clients)
    assert np.linalg.norm(flat(after) - target) < np.linalg.norm(flat(before) - target)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=8)
@given(seed=st.integers(0, 999))
def test_the_servers_gradient_is_that_of_an_inner_product(seed: int) -> None:
    """`J^T delta = grad <h(theta, nu_i), delta>`."""
    method, step = gentle("pfedhn")
    server, clients = first("pfedhn", seed)
    alone = jax.tree.map(lambda leaf: leaf[2:3], clients)
    before = method.predict(server, row(alone, 0))
    delta = random_like(before, np.random.default_rng(seed))
    gradient, _ = step(server, alone, jax.tree.map(lambda w, d: w - d, before, delta))
    expected = gradient_of_inner_product()(server.weights, server, row(alone, 0), delta)
    close(gradient, expected, rtol=1e-3, atol=1e-5)
    others = np.delete(np.asarray(gradient.nu), int(alone.place[0]), axis=0)
    assert (others == 0).all(), "another client's embedding got a gradient"


@functools.cache
def embedding_case(kind: str) -> Case:
    return make_case(build("hfedf", toy_federation(), embeddings=kind, embedding_dim=3), plan=make_plan(epochs=1))


@functools.cache
def embeddings_after(kind: str, rounds: int) -> np.ndarray:
    return np.asarray(embedding_case(kind).advance(rounds).server.weights.nu)


@pytest.mark.slow
def test_fixed_embeddings_never_change_and_random_ones_always_do() -> None:
    for rounds in (1, 2):
        np.testing.assert_array_equal(embeddings_after("fixed", rounds), embeddings_after("fixed", 0))
    drawn = [embeddings_after("random", rounds) for rounds in range(3)]
    assert len({float(nu[client, 0]) for nu in drawn for client in range(CLIENTS)}) == 3 * CLIENTS
    learned = [embeddings_after("learned", rounds) for rounds in range(3)]
    for before, after in itertools.pairwise(learned):
        assert (np.abs(after - before).max(axis=1) > 0).all()
        assert np.abs(after - before).max() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["learned", "random"])
def test_embeddings_belong_to_the_clients_id(kind: str) -> None:
    """Those before the first round, and those a round leads to; one method serves both federations."""
    order, case = [2, 0, 3, 1], embedding_case(kind)
    swapped = reorder(toy_federation(), order)
    close(case.start(federation=swapped).server.weights.nu, embeddings_after(kind, 0)[order])
    if kind == "random":
        close(case.advance(1, federation=swapped).server.weights.nu, embeddings_after(kind, 1)[order])


@pytest.mark.parametrize(("clients", "dim"), [(1, 1), (3, 1), (4, 2), (7, 2), (8, 3), (100, 26)])
def test_embeddings_have_the_papers_dimension(clients: int, dim: int) -> None:
    federation = toy_federation((2,) * clients, longest=2)
    for name in ("hfedf", "pfedhn"):
        method = build(name, federation)
        server, _ = jax.eval_shape(method.init, jax.random.key(0), federation)
        assert server.weights.nu.shape == (clients, dim)
        method = build(name, federation, embedding_dim=5)
        assert jax.eval_shape(method.init, jax.random.key(0), federation)[0].weights.nu.shape == (clients, 5)


@pytest.mark.slow
def test_autoencoder_embeddings_are_means_over_a_clients_own_images() -> None:
    federation, training = toy_federation(), EmbeddingTraining(dim=3, epochs=1, images=6)
    embed = jax.jit(lambda f, key: autoencoder_embeddings(training, Execution(), key, f))
    nu = np.asarray(embed(federation, jax.random.key(0)))
    assert nu.shape == (CLIENTS, 3)
    assert np.isfinite(nu).all()
    assert len(np.unique(nu.round(5), axis=0)) == CLIENTS
    order = [3, 1, 0, 2]
    np.testing.assert_allclose(embed(reorder(federation, order), jax.random.key(0)), nu[order], rtol=1e-4, atol=1e-6)
    places = federation.validation.places
    longer = federation._replace(validation=federation.validation._replace(places=jnp.pad(places, ((0, 0), (0, 2)))))
    np.testing.assert_allclose(embed(longer, jax.random.key(0)), nu, rtol=1e-4, atol=1e-6)
    one_by_one = [
        federation._replace(validation=Rows(jnp.roll(places, -i, axis=1), jnp.ones(CLIENTS, jnp.int32)))
        for i in range(3)
    ]
    wanted = np.mean([embed(one, jax.random.key(0)) for one in one_by_one], axis=0)
    three = federation._replace(validation=Rows(places, jnp.full(CLIENTS, 3)))
    np.testing.assert_allclose(embed(three, jax.random.key(0)), wanted, rtol=1e-4, atol=1e-6)
