"""FedDyn's laws: the paper's update, the invariant of h, and an optimum that FedAvg misses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import ServerStep
from fdgjax.engine.traffic import traffic
from fdgjax.methods.fedavg import Message
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of
from tests.methods.convex import gradient_at_rest
from tests.toys import build, flat, make_case, make_plan, poison, row, shared_case, shared_method, toy_federation

WHOLE = make_plan(drop_nonfinite=True)
ALPHA = 0.1
LENGTHS = np.asarray(toy_federation().train.length, np.float64)


@pytest.mark.slow
def test_the_first_round_is_fedproxs_at_twice_the_step() -> None:
    """Every h_i is zero, and `w <- mean w_i - h / alpha` is w plus twice the mean update."""
    same = {"weighting": "uniform", "client_clip": 10.0}
    fedprox = make_case(build("fedprox", toy_federation(), mu=ALPHA, **same))
    case = shared_case("feddyn", plan=WHOLE)
    before, prox, after = (
        flat(x) for x in (case.start().server.base, fedprox.advance(1).server, case.advance(1).server.base)
    )
    np.testing.assert_allclose(after - before, 2 * (prox - before), rtol=1e-3, atol=1e-5)
    doubled = make_case(build("fedprox", toy_federation(), mu=ALPHA, server_learning_rate=2.0, **same)).advance(2)
    assert not np.allclose(flat(case.advance(2).server.base), flat(doubled.server), atol=1e-4)


@pytest.mark.slow
def test_the_servers_update_by_hand() -> None:
    """Algorithm 1's last lines in NumPy, for two clients of four, twice."""
    method, federation, rng = shared_method("feddyn"), toy_federation(), np.random.default_rng(0)
    server, clients = method.init(jax.random.key(0), federation)
    w = flat(server.base)
    h = np.zeros_like(w)
    for _ in range(2):
        updates = jax.tree.map(
            lambda leaf: jnp.asarray(rng.normal(size=(2, *leaf.shape)), jnp.float32), server.base.variables
        )
        seen = [flat(row(updates, client)) for client in range(2)]
        h = h - ALPHA / len(federation.ids) * sum(seen)
        w = np.mean([w + u for u in seen], axis=0) - h / ALPHA
        rows = jax.tree.map(lambda leaf: leaf[:2], clients)
        step, _ = method.aggregate(server, rows, Message(updates, {}), jnp.ones(2))
        server, _ = method.update(server, rows, step, ServerStep(jnp.int32(0), jax.random.key(0)))
        np.testing.assert_allclose(flat(server.base), w, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(flat(server.more.h), h, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_the_servers_h_is_the_mean_of_the_clients(weighting: str) -> None:
    """Whoever is drawn, and though one of them diverges."""
    plan = make_plan("map", per_round=3, drop_nonfinite=True)
    case = make_case(build("feddyn", toy_federation(), weighting=weighting), plan=plan)
    shares = LENGTHS / LENGTHS.sum() if weighting == "samples" else np.full(len(LENGTHS), 1 / len(LENGTHS))
    state = case.start()
    for round_ in range(4):
        state, _ = case.round(state, poison(case.federation, 3) if round_ == 2 else case.federation)
        rows = np.stack([flat(row(state.clients, client)) for client in case.everyone])
        np.testing.assert_allclose(flat(state.server.more.h), shares @ rows, rtol=1e-4, atol=1e-6)
    assert np.abs(rows).max() > 1e-4


@pytest.mark.slow
def test_it_reaches_the_optimum_that_fedavg_misses() -> None:
    assert gradient_at_rest("feddyn", alpha=0.1) < 1e-4
    assert gradient_at_rest("feddyn", alpha=0.1, weighting="samples") < 1e-4


def test_nothing_but_models_travels() -> None:
    mine, fedavgs = (traffic(shared_method(name), toy_federation()) for name in ("feddyn", "fedavg"))
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent)
    assert bytes_of(mine.message) == bytes_of(fedavgs.message)


@pytest.mark.parametrize("alpha", [0.0, -0.1])
def test_alpha_is_positive(alpha: float) -> None:
    with pytest.raises(UserError, match=f"method.alpha got {alpha}; expected a positive") as error:
        build("feddyn", toy_federation(), alpha=alpha)
    assert "\n" not in str(error.value)
