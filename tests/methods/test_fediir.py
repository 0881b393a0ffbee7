"""FedIIR's laws: FedAvg without a penalty, the last layer's gradient by differentiation, the server's mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context
from fdgjax.engine.traffic import traffic
from fdgjax.methods.fediir import HeadGradient, head_gradient
from fdgjax.methods.parts.extend import Extended
from fdgjax.utils.variables import bytes_of
from tests.toy_models import CLASSES, FEATURES, IMAGE, tiny_model
from tests.toys import CLIENTS, build, close, flat, make_case, make_plan, shared_case, shared_method, toy_federation

WHOLE = make_plan(drop_nonfinite=True)
MODEL = tiny_model()


@pytest.mark.slow
def test_without_a_penalty_it_is_fedavg() -> None:
    bare = make_case(build("fediir", toy_federation(), penalty=0.0))
    close(bare.advance(2).server.base, shared_case("fedavg", plan=WHOLE).advance(2).server)


def some_batch() -> tuple[dict, Batch]:
    """A model, and three samples of different trust and one that is padding."""
    variables = MODEL.init(jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (4, *IMAGE), minval=-1)
    labels, mask, trust = jnp.int32([2, 0, 1, 1]), jnp.float32([1, 1, 1, 0]), jnp.float32([0.5, 1, 1, 1])
    return variables, Batch(images, labels, mask, trust)


def differentiated(variables: dict, batch: Batch) -> HeadGradient:
    """The cross-entropy's gradient by all parameters, of which the last layer's are taken."""
    plain, context = build("fedavg", toy_federation()), Context((), (), variables, jnp.int32(0))
    gradient = jax.grad(lambda p: plain.objective({"params": p}, batch, jax.random.key(0), context)[0])
    last = gradient(variables["params"])["linear_2"]
    return HeadGradient(last["kernel"], last["bias"])


@pytest.mark.slow
def test_the_gradient_of_the_last_layer_and_the_penalty_by_differentiation() -> None:
    variables, batch = some_batch()
    wanted = differentiated(variables, batch)
    output, _ = MODEL.apply(variables, batch.inputs, True, jax.random.key(0))
    close(head_gradient(output.features, output.logits, batch.labels, batch.mask * batch.label_weight), wanted)
    mean = HeadGradient(jnp.full((FEATURES, CLASSES), 0.1), jnp.float32([0.3, -0.1, 0]))
    losses = []
    for penalty in (0.0, 0.7):
        method = build("fediir", toy_federation(), penalty=penalty)
        context = Context(Extended(variables, mean), (), variables, jnp.int32(0))
        losses.append(float(method.objective(variables, batch, jax.random.key(0), context)[0]))
    gap = np.sum((flat(wanted) - flat(mean)) ** 2)
    np.testing.assert_allclose(losses[1] - losses[0], 0.7 * gap, rtol=1e-4)


@pytest.mark.slow
def test_the_server_keeps_a_moving_mean_of_gradients_at_the_models_it_sent() -> None:
    case, federation = shared_case("fediir", plan=WHOLE), toy_federation()
    share = np.asarray(federation.train.length, np.float64)
    share, wanted = share / share.sum(), np.zeros(FEATURES * CLASSES + CLASSES)
    state = case.start()
    for _ in range(2):
        variables = jax.tree.map(jnp.array, state.server.base.variables)
        gradients = []
        for client in range(CLIENTS):
            rows = np.asarray(federation.train.places[client])[: int(federation.train.length[client])]
            images = jnp.asarray(np.asarray(federation.inputs)[rows] / 127.5 - 1, jnp.float32)
            batch = Batch(images, jnp.asarray(np.asarray(federation.labels)[rows]), jnp.ones(len(rows)))
            gradients.append(flat(differentiated(variables, batch)))
        wanted = 0.95 * wanted + 0.05 * share @ np.stack(gradients)
        state, _ = case.round(state, case.federation)
        np.testing.assert_allclose(flat(state.server.more), wanted, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_where_nobody_counts_the_mean_stays() -> None:
    method = build("fediir", toy_federation())
    server, clients = method.init(jax.random.key(0), toy_federation())
    server = server._replace(more=jax.tree.map(lambda leaf: leaf + 2, server.more))
    message = traffic(method, toy_federation()).message
    nan = jax.tree.map(lambda leaf: jnp.full((CLIENTS, *leaf.shape), jnp.nan), message)
    step, _ = method.aggregate(server, clients, nan, jnp.zeros(CLIENTS))
    np.testing.assert_array_equal(flat(step.more), 2)


def test_a_gradient_of_the_last_layer_more_travels_both_ways() -> None:
    mine, fedavgs = (traffic(shared_method(name), toy_federation()) for name in ("fediir", "fedavg"))
    head = 4 * (FEATURES + 1) * CLASSES
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent) + head
    assert bytes_of(mine.message) == bytes_of(fedavgs.message) + head
