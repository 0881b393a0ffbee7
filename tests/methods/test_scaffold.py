"""SCAFFOLD's laws: the paper's formula, the invariant of the control variates, and an optimum that FedAvg misses."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fdgjax.contract import Context, ServerStep, Trained
from fdgjax.engine.traffic import traffic
from fdgjax.methods.parts.extend import Extended
from fdgjax.methods.parts.sharing import ClientVariables
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of
from tests.methods.convex import PLAIN_SGD, gradient_at_rest
from tests.toy_models import tiny_model
from tests.toys import build, close, flat, make_case, make_plan, poison, reorder, row, shared_case, toy_federation

WHOLE = make_plan(drop_nonfinite=True)
LENGTHS = np.asarray(toy_federation().train.length, np.float64)


@pytest.mark.slow
def test_the_first_round_is_fedavgs() -> None:
    """All control variates are zero; with momentum, weight decay and the defaults' clipping."""
    fedavg = make_case(build("fedavg", toy_federation(), weighting="uniform", client_clip=10.0))
    case = shared_case("scaffold", plan=WHOLE)
    close(case.advance(1).server.base, fedavg.advance(1).server)
    assert not np.allclose(flat(case.advance(2).server.base), flat(fedavg.advance(2).server), atol=1e-5)


@pytest.mark.slow
def test_with_one_client_it_is_fedavg() -> None:
    federation = reorder(toy_federation(), [3])
    case = make_case(build("scaffold", federation), federation)
    fedavg = make_case(build("fedavg", federation, client_clip=10.0), federation)
    state = case.advance(3)
    close(state.server.base, fedavg.advance(3).server, atol=1e-5)
    assert np.abs(flat(state.server.more.variate)).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
def test_the_mean_gradient_is_the_papers_displacement(keep: bool) -> None:
    """Plain SGD, its learning rate decaying: `(x - y_i) / (K eta_l)` is the mean of the round's corrected gradients."""
    chosen = PLAIN_SGD | {"client_learning_rate_decay": 0.5, "client_weight_decay": 0.0, "keep_optimizer": keep}
    states = [
        make_case(build("scaffold", toy_federation(), control=control, **chosen)).advance(3)
        for control in ("gradients", "displacement")
    ]
    close(*states, rtol=1e-3, atol=1e-5)


def test_the_displacement_of_a_learning_rate_that_changes_within_a_round_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="expected constant or cosine") as error:
        build("scaffold", toy_federation(), control="displacement", client_schedule="step")
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_update_by_hand() -> None:
    """Algorithm 1, lines 12 to 17, in NumPy, for two of the clients."""
    federation, rng = toy_federation(), np.random.default_rng(0)
    method = build("scaffold", federation, **PLAIN_SGD)
    server, clients = method.init(jax.random.key(0), federation)
    noise = lambda tree: jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), tree)  # noqa: E731
    params = server.base.variables["params"]
    server = server._replace(more=server.more._replace(variate=noise(params)))
    steps, seen = 3, [0, 2]
    messages, wanted_x, wanted_c = [], flat(params), flat(server.more.variate)
    for _ in seen:
        c_i, gradients, y = noise(params), noise(params), noise(params)
        sent, kept = Extended(server.base.variables, server.more.variate), Extended(ClientVariables({}, {}), c_i)
        context = Context(sent, kept, {"params": params}, jnp.int32(0))
        state = jax.tree.map(lambda leaf: leaf, method.optimizer.init(params))
        state = optax.tree.set(state, gradient_sum=gradients)
        message, kept = method.finish(context, Trained({"params": y}, state, jnp.float32(0), jnp.int32(steps)))
        new = flat(c_i) - flat(server.more.variate) + flat(gradients) / steps
        np.testing.assert_allclose(flat(kept.more), new, rtol=1e-4, atol=1e-5)
        messages.append(message)
        wanted_x = wanted_x + (flat(y) - flat(params)) / len(seen)
        wanted_c = wanted_c + (new - flat(c_i)) / len(federation.ids)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *messages)
    rows = jax.tree.map(lambda leaf: leaf[jnp.asarray(seen)], clients)
    step, _ = method.aggregate(server, rows, stacked, jnp.ones(len(seen)))
    after, _ = method.update(server, rows, step, ServerStep(jnp.int32(0), jax.random.key(0)))
    np.testing.assert_allclose(flat(after.base), wanted_x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(flat(after.more.variate), wanted_c, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_the_servers_control_variate_is_the_mean_of_the_clients(weighting: str) -> None:
    """Whoever is drawn, and though one of them diverges."""
    plan = make_plan("map", drop_last=True, per_round=3, drop_nonfinite=True)
    case = make_case(build("scaffold", toy_federation(), weighting=weighting), plan=plan)
    shares = LENGTHS / LENGTHS.sum() if weighting == "samples" else np.full(len(LENGTHS), 1 / len(LENGTHS))
    state = case.start()
    for round_ in range(4):
        federation = poison(case.federation, 3) if round_ == 2 else case.federation
        state, _ = case.round(state, federation)
        rows = np.stack([flat(row(state.clients, client)) for client in case.everyone])
        np.testing.assert_allclose(flat(state.server.more.variate), shares @ rows, rtol=1e-4, atol=1e-5)
    assert (np.abs(rows[2]) == 0).all(), "a client without a full batch learned something"


@pytest.mark.slow
def test_it_reaches_the_optimum_that_fedavg_misses() -> None:
    assert gradient_at_rest("fedavg") > 3e-3
    assert gradient_at_rest("scaffold") < 1e-4
    assert gradient_at_rest("scaffold", weighting="samples") < 1e-4


def test_control_variates_travel_beside_parameters_but_not_beside_statistics() -> None:
    model = tiny_model("norm")
    variables = jax.eval_shape(model.init, jax.random.key(0))
    travelling = traffic(build("scaffold", toy_federation(), "norm"), toy_federation())
    wanted = bytes_of(variables) + bytes_of(variables["params"])
    assert bytes_of(travelling.sent) == bytes_of(travelling.message) == wanted
