"""Ditto's global model is FedAvg's, its personal ones are Local's but for the pull to what the server sent."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fdgjax.contract import Batch, Context, Method, Variables
from fdgjax.engine import State
from fdgjax.engine.traffic import traffic
from fdgjax.methods.ditto import one_model, two_models
from fdgjax.utils.variables import bytes_of
from tests.toy_models import IMAGE, tiny_model
from tests.toys import FULL_LENGTHS, build, close, flat, make_case, make_plan, shared_case, toy_federation

WHOLE = make_plan(drop_nonfinite=True)


@pytest.mark.slow
def test_the_global_model_is_fedavgs_and_without_the_term_the_personal_ones_are_locals() -> None:
    # So short a gradient that both models are clipped, each by its own length.
    chosen = {"client_clip": 0.1, "client_learning_rate_decay": 0.9}
    federation, rounds = toy_federation(FULL_LENGTHS), 3
    both = make_case(build("ditto", federation, "norm", mu=0.0, **chosen), federation, WHOLE).advance(rounds)
    fedavg = make_case(build("fedavg", federation, "norm", **chosen), federation, WHOLE).advance(rounds)
    alone = build("local", federation, "norm", keep_optimizer=False, **chosen)
    local = make_case(alone, federation, WHOLE).advance(rounds)
    close(one_model(both.server.variables, "global"), fedavg.server.variables)
    close(one_model(both.clients.local, "personal"), local.clients.local)


@pytest.mark.slow
def test_the_pull_moves_the_personal_models_alone() -> None:
    pulled = make_case(build("ditto", toy_federation(), mu=5.0), plan=WHOLE).advance(2)
    free = shared_case("ditto", plan=WHOLE).advance(2)
    close(pulled.server, free.server)

    def gap(state: State) -> float:
        """How far the personal models are from the global one."""
        differences = jax.vmap(optax.tree.sub, (0, None))(
            one_model(state.clients.local, "personal"), one_model(state.server.variables, "global")
        )
        return float(np.linalg.norm(flat(differences)))

    assert gap(pulled) < 0.5 * gap(free)


@pytest.mark.slow
def test_the_gradient_is_that_of_algorithm_1() -> None:
    model, mu, rng = tiny_model(), 0.3, np.random.default_rng(0)
    w, v, w_0, v_0 = (model.init(jax.random.key(k)) for k in range(4))
    images, labels = rng.normal(size=(4, *IMAGE)), rng.integers(0, 3, 4)
    batch = Batch(jnp.asarray(images, jnp.float32), jnp.asarray(labels, jnp.int32), jnp.ones(4))
    key, nothing = jax.random.key(9), jnp.zeros((), jnp.int32)
    ditto, fedavg = build("ditto", toy_federation(), mu=mu), build("fedavg", toy_federation())

    def gradient(method: Method, variables: Variables, received: Variables) -> Variables:
        context = Context({}, {}, received, nothing)
        return jax.grad(lambda x: method.objective(x, batch, key, context)[0])(variables)

    got = gradient(ditto, two_models(w, v), two_models(w_0, v_0))
    np.testing.assert_allclose(flat(one_model(got, "global")), flat(gradient(fedavg, w, w_0)), rtol=1e-5, atol=1e-7)
    wanted = flat(gradient(fedavg, v, v_0)) + mu * (flat(v) - flat(w_0))
    np.testing.assert_allclose(flat(one_model(got, "personal")), wanted, rtol=1e-5, atol=1e-6)


def test_only_the_global_model_travels() -> None:
    ditto, fedavg = (traffic(build(name, toy_federation(), "norm"), toy_federation()) for name in ("ditto", "fedavg"))
    assert bytes_of(ditto.sent) == bytes_of(fedavg.sent)
    assert bytes_of(ditto.message) == bytes_of(fedavg.message)


@pytest.mark.slow
def test_the_global_model_predicts_for_an_unseen_domain_and_the_personal_one_for_its_client() -> None:
    method = build("ditto", toy_federation(), "norm")
    state = make_case(method, plan=WHOLE).advance(1)
    close(
        method.unseen(state.server, state.clients),
        jax.tree.map(lambda x: x[None], one_model(state.server.variables, "global")),
    )
    mine = jax.tree.map(lambda leaf: leaf[2], state.clients)
    close(method.predict(state.server, mine), one_model(mine.local, "personal"))
    each = build("ditto", toy_federation(), "norm", unseen="each").unseen(state.server, state.clients)
    close(each, one_model(state.clients.local, "personal"))
