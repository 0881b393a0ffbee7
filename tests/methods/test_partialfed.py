"""PartialFed loads what its policy says: everything is FedAvg, nothing Local, and the policy follows its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context
from fdgjax.engine import State
from fdgjax.engine.traffic import traffic
from fdgjax.methods.fedavg import ClientVariables
from fdgjax.methods.partialfed import without_policy
from fdgjax.methods.parts.extend import Extended
from fdgjax.utils.variables import bytes_of
from tests.toy_models import IMAGE, tiny_model
from tests.toys import (
    FULL_LENGTHS,
    LENGTHS,
    build,
    by_numpy,
    close,
    flat,
    make_case,
    make_plan,
    row,
    shared_case,
    toy_federation,
)

WHOLE = make_plan(drop_nonfinite=True)
FIXED = {"policy_learning_rate": 0.0}


@pytest.mark.slow
def test_loading_everything_is_fedavg_and_nothing_local() -> None:
    federation, chosen = toy_federation(FULL_LENGTHS), {"client_clip": 0.1}

    def after(name: str, **more: object) -> State:
        return make_case(build(name, federation, "norm", **chosen, **more), federation).advance(2)

    fedavg, local = after("fedavg"), after("local", keep_optimizer=False)
    # While the policy says `all`, learning it changes nothing, its gradient is not clipped with the model's.
    close(after("partialfed").server.variables, fedavg.server.variables)
    close(after("partialfed", policy="none", **FIXED).clients.more, local.clients.local)


@pytest.mark.slow
def test_a_fixed_policy_keeps_batch_norm() -> None:
    method = build("partialfed", toy_federation(), "norm", policy="all_but_norm", **FIXED)
    state = make_case(method, plan=WHOLE).advance(2)
    mine = row(state.clients, 1)
    got = method.predict(state.server, mine)
    for collection, modules in got.items():
        for module, leaves in modules.items():
            source = mine.more if module == "norm" else state.server.variables
            close(leaves, source[collection][module], rtol=0, atol=0)
    np.testing.assert_array_equal(mine.base.local["params"]["policy"], [1, 1, -1])


@pytest.mark.slow
def test_the_server_has_the_mean_of_the_rounds_clients_layers_that_nobody_loads_too() -> None:
    """With drawn clients the mean of updates from what each client started from would be another."""
    method = build("partialfed", toy_federation(), policy="none", **FIXED)
    case = make_case(method, plan=make_plan(per_round=2))
    state = case.start()
    for _ in range(4):
        state, info = case.round(state, case.federation)
    who = np.asarray(info.participants)
    share = np.asarray(LENGTHS)[who] / np.asarray(LENGTHS)[who].sum()
    mean = jax.tree.map(lambda leaf: np.tensordot(share, np.asarray(leaf, np.float64)[who], 1), state.clients.more)
    close(state.server.variables, mean)


@pytest.mark.slow
def test_the_policys_gradient_by_hand() -> None:
    """By finite differences of the loss of the blended model, whose noise is drawn from the batch's key."""
    model, rng = tiny_model(), np.random.default_rng(0)
    init = jax.jit(model.init)
    sent, kept, mine = (init(jax.random.key(k)) for k in range(3))
    temperature, policy = 0.7, jnp.asarray([0.3, -0.2])
    method = build("partialfed", toy_federation(), temperature=temperature)
    plain = jax.jit(build("fedavg", toy_federation()).objective)
    images, labels = rng.normal(size=(4, *IMAGE)), rng.integers(0, 3, 4)
    batch = Batch(jnp.asarray(images, jnp.float32), jnp.asarray(labels, jnp.int32), jnp.ones(4))
    key, own = jax.random.key(5), {"params": {"policy": policy}}
    context = Context(sent, Extended(ClientVariables({}, own), kept), {}, jnp.zeros((), jnp.int32))
    variables = {"params": {**mine["params"], "policy": policy}}
    gradient = jax.jit(jax.grad(lambda v: method.objective(v, batch, key, context)[0]))(variables)["params"]
    alone = jax.jit(jax.grad(lambda v: plain(v, batch, key, context)[0]))(mine)
    close(without_policy({"params": gradient}), alone)

    uniform = np.asarray(jax.random.logistic(jax.random.fold_in(key, 1), (2,)), np.float64)

    def blended(a: np.ndarray) -> float:
        u = 1 / (1 + np.exp(-(a + uniform) / temperature))
        shares = dict(zip(("linear_1", "linear_2"), u.astype(np.float32), strict=True))
        mixed = {
            name: by_numpy(lambda w, v, u=share: u * w + (1 - u) * v, sent["params"][name], kept["params"][name])
            for name, share in shares.items()
        }
        return float(plain({"params": mixed}, batch, key, context)[0])

    steps = 1e-2 * np.eye(2)
    wanted = [(blended(np.asarray(policy) + s) - blended(np.asarray(policy) - s)) / 2e-2 for s in steps]
    np.testing.assert_allclose(gradient["policy"], wanted, rtol=0.02, atol=1e-4)


@pytest.mark.slow
def test_the_policy_moves_away_from_a_global_layer_that_fits_worse() -> None:
    """The policy is learnt, and what it says is what is loaded."""
    case = make_case(build("partialfed", toy_federation(), policy_learning_rate=50.0), plan=WHOLE)
    state = case.advance(3)
    policies = np.asarray(state.clients.base.local["params"]["policy"])
    assert (policies <= 0).any()
    for client in case.everyone:
        mine = row(state.clients, client)
        got = case.method.predict(state.server, mine)["params"]
        for place, module in enumerate(("linear_1", "linear_2")):
            source = state.server.variables if policies[client, place] > 0 else mine.more
            close(got[module], source["params"][module], rtol=0, atol=0)


def test_as_much_travels_as_in_fedavg_and_the_policy_stays() -> None:
    mine, fedavg = (
        traffic(build(name, toy_federation(), "norm"), toy_federation()) for name in ("partialfed", "fedavg")
    )
    assert bytes_of(mine.sent) == bytes_of(fedavg.sent)
    assert bytes_of(mine.message) == bytes_of(fedavg.message)


@pytest.mark.slow
def test_unseen_domains_get_the_global_model_or_each_clients() -> None:
    method = build("partialfed", toy_federation(), unseen="each")
    state = shared_case("partialfed", plan=WHOLE).advance(1)
    each = method.unseen(state.server, state.clients)
    close(row(each, 2), method.predict(state.server, row(state.clients, 2)))
    shared = build("partialfed", toy_federation()).unseen(state.server, state.clients)
    np.testing.assert_array_equal(flat(shared), flat(state.server.variables))
