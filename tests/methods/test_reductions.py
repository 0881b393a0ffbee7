"""Methods that are special cases of each other give the same numbers."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fdgjax.contract import ServerStep
from fdgjax.methods.fedavg import ClientVariables, Message, ServerState
from tests.toy_models import tiny_model
from tests.toys import build, close, flat, make_case, make_plan, reorder, row, shared_case, toy_federation

ROUNDS = 3
WHOLE = make_plan(drop_nonfinite=True)
ADAM = {"client_optimizer": "adam", "client_learning_rate": 0.01, "client_momentum": 0.0}


@pytest.mark.slow
def test_fedprox_without_its_term_is_fedavg() -> None:
    federation, fedavg = toy_federation(), shared_case("fedavg", plan=WHOLE)
    close(make_case(build("fedprox", federation, mu=0.0)).advance(ROUNDS), fedavg.advance(ROUNDS))
    pulled = shared_case("fedprox", plan=WHOLE).advance(1)
    assert not np.allclose(flat(pulled.server), flat(fedavg.advance(1).server), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_fedavg_with_one_client_is_central() -> None:
    # The pooled client's name in the random streams is 0.
    federation = toy_federation((9,))._replace(ids=jnp.zeros(1, jnp.int32))
    fedavg, central = build("fedavg", federation, **ADAM), build("central", federation, **ADAM)
    assert central.pooled
    case = make_case(build("fedavg", federation, keep_optimizer=True, **ADAM), federation)
    kept = make_case(central, federation).advance(ROUNDS)
    close(kept, case.advance(ROUNDS))
    forgotten = make_case(fedavg, federation).advance(ROUNDS)
    assert not np.allclose(flat(kept.server), flat(forgotten.server), atol=1e-5)


@pytest.mark.slow
def test_hfedf_without_alignment_and_smoothing_is_pfedhn() -> None:
    bare = make_case(build("hfedf", toy_federation(), alignment="none", ema=1.0))
    close(bare.advance(ROUNDS), shared_case("pfedhn", plan=WHOLE).advance(ROUNDS))


@pytest.mark.slow
def test_hfedf_without_alignment_and_smoothing_is_pfedhn_with_adam_and_drawn_clients() -> None:
    same = ADAM | {"client_weight_decay": 1e-3, "server_optimizer": "adam", "server_learning_rate": 0.02}
    federation, plan = toy_federation(), make_plan(per_round=2, epochs=1)
    bare = make_case(build("hfedf", federation, alignment="none", ema=1.0, **same), plan=plan)
    close(bare.advance(ROUNDS), make_case(build("pfedhn", federation, **same), plan=plan).advance(ROUNDS))


@pytest.mark.slow
def test_alignment_and_smoothing_each_matter() -> None:
    bare, aligned = (shared_case(name, plan=WHOLE) for name in ("pfedhn", "hfedf"))
    assert not np.allclose(flat(aligned.advance(1).server), flat(bare.advance(1).server), rtol=0, atol=1e-6)
    smoothed = make_case(build("hfedf", toy_federation(), alignment="none", ema=0.75, warmup=1))
    # Round 1 is the warm-up round: the first to be smoothed is round 2.
    close(smoothed.advance(2).server, bare.advance(2).server)
    assert not np.allclose(flat(smoothed.advance(3).server), flat(bare.advance(3).server), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_local_is_each_client_alone() -> None:
    case = shared_case("local", plan=WHOLE)
    together, federation = case.advance(2), case.federation
    alone = make_case(case.method, reorder(federation, [0]))
    for client in case.everyone:
        state = alone.advance(2, federation=reorder(federation, [client]))
        close(row(state.clients, 0), row(together.clients, client))
        close(row(state.optimizers, 0), row(together.optimizers, client))


@pytest.mark.slow
def test_local_and_fedavg_agree_until_something_is_sent() -> None:
    """FedAvg's first step is the mean of what Local's clients have become."""
    fedavg = shared_case("fedavg", plan=WHOLE)
    locally = shared_case("local", plan=WHOLE).advance(1).clients.local
    share = np.asarray(toy_federation().train.length, np.float64)
    wanted = jax.tree.map(lambda leaf: np.tensordot(share / share.sum(), np.asarray(leaf, np.float64), 1), locally)
    close(fedavg.advance(1).server.variables, wanted)
    uniform = build("fedavg", toy_federation(), weighting="uniform").weights(jnp.asarray([5, 1, 9]))
    np.testing.assert_array_equal(uniform, np.array([1, 1, 1], np.float32))


@pytest.mark.parametrize("name", ["yogi", *(pytest.param(one, marks=pytest.mark.slow) for one in ("adagrad", "adam"))])
def test_the_server_may_take_the_mean_as_a_gradient(name: str) -> None:
    """Reddi et al., 2021, Algorithm 2, by hand in float64; in the last round no client has an update."""
    method = build("fedavg", toy_federation(), server_optimizer=name, server_learning_rate=0.1, server_epsilon=0.01)
    rng, beta = np.random.default_rng(0), 0.0 if name == "adagrad" else 0.9
    server, _ = method.init(jax.random.key(0), toy_federation())
    x = flat(server.variables)
    m, v = np.zeros_like(x), np.full_like(x, 0.01**2)
    update = jax.jit(method.update)
    for t, size in enumerate((1e-2, 1.0, 1e-3, 0.0)):
        drawn = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), server.variables)
        step = optax.tree.scale(size, drawn)
        server, _ = update(
            server, ClientVariables({}, {}), Message(step, {}), ServerStep(jnp.asarray(t), jax.random.key(t))
        )
        delta = flat(step)
        m = beta * m + (1 - beta) * delta
        v = {
            "adagrad": v + delta**2,
            "adam": 0.99 * v + 0.01 * delta**2,
            "yogi": v - 0.01 * delta**2 * np.sign(v - delta**2),
        }[name]
        x = x + 0.1 * m / (np.sqrt(v) + 0.01)
        np.testing.assert_allclose(flat(server.variables), x, rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_equal_structs(server.variables, tiny_model().init(jax.random.key(0)))


@pytest.mark.parametrize("name", ["adam", "adamw", "yogi"])
def test_without_an_update_no_server_moves(name: str) -> None:
    method = build("fedavg", toy_federation(), server_optimizer=name)
    server, _ = method.init(jax.random.key(0), toy_federation())
    step = jax.tree.map(jnp.zeros_like, server.variables)
    after, _ = method.update(
        server, ClientVariables({}, {}), Message(step, {}), ServerStep(jnp.asarray(0), jax.random.key(0))
    )
    np.testing.assert_array_equal(flat(after.variables), flat(server.variables))


def test_momentum_of_the_server() -> None:
    method = build("fedavg", toy_federation(), server_learning_rate=0.5, server_momentum=0.9)
    server, _ = method.init(jax.random.key(0), toy_federation())
    start, step = flat(server.variables), jax.tree.map(jnp.ones_like, server.variables)
    for t in range(2):
        server, _ = method.update(
            server, ClientVariables({}, {}), Message(step, {}), ServerStep(jnp.asarray(t), jax.random.key(t))
        )
    np.testing.assert_allclose(flat(server.variables) - start, 0.5 * (1 + 1.9), rtol=1e-5)


@pytest.mark.slow
def test_statistics_do_not_go_through_the_servers_optimiser() -> None:
    method = build("fedavg", toy_federation(), "norm", server_optimizer="adam", server_learning_rate=0.1)
    server, _ = method.init(jax.random.key(0), toy_federation())
    step = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.25), server.variables)
    after, _ = method.update(
        server, ClientVariables({}, {}), Message(step, {}), ServerStep(jnp.asarray(0), jax.random.key(0))
    )
    assert isinstance(after, ServerState)
    moved = flat(after.variables["batch_stats"]) - flat(server.variables["batch_stats"])
    np.testing.assert_allclose(moved, 0.25, rtol=1e-6)
    moved = flat(after.variables["params"]) - flat(server.variables["params"])
    # Adam's m is 0.1 of the step, the root of its v about as much.
    np.testing.assert_allclose(moved, 0.1 * 0.025 / (np.sqrt(0.01 * 0.25**2 + 0.99e-6) + 1e-3), rtol=1e-3)
