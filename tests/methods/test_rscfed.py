"""RSCFed: its teacher by hand, its lots, and what it reduces to."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context, ServerStep
from fdgjax.data.augmentations.weak_strong import unchanged_images
from fdgjax.engine.round import train_server
from fdgjax.engine.traffic import traffic
from fdgjax.methods.rscfed import RSCFed, draw_subsets
from fdgjax.objectives import mean_teacher, new_teacher, student_of
from fdgjax.utils.variables import bytes_of
from tests.toy_models import IMAGE, tiny_model
from tests.toys import build, close, flat, make_case, make_plan, rows_of, shared_method, toy_federation

WHOLE = make_plan("map", drop_nonfinite=True)
TOGETHER: dict[str, Any] = {"subsets": 1, "share": 1.0, "beta": 0.0}


@pytest.mark.slow
def test_without_consistency_only_the_server_trains() -> None:
    case = make_case(build("rscfed", toy_federation(), consistency=0.0, client_weight_decay=0.0), plan=WHOLE)
    state, server = case.start(), case.start().server
    alone = jax.jit(lambda s: train_server(case.method, WHOLE, state, s, case.federation, last=False)[0])
    wanted = alone(server)
    close(case.advance(1).server, wanted)


@pytest.mark.slow
def test_one_sub_set_of_everybody_is_the_weighted_mean() -> None:
    method, federation = build("rscfed", toy_federation(), **TOGETHER), toy_federation()
    server, clients = method.init(jax.random.key(0), federation)
    message = traffic(method, federation).message
    rng = np.random.default_rng(0)
    updates = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=(4, *leaf.shape)), jnp.float32), message)
    weights = method.weights(federation.train.length)
    step, info = jax.jit(method.aggregate)(server, clients, updates, weights)
    share = np.asarray(weights) / np.asarray(weights).sum()
    np.testing.assert_allclose(info["weights"], share, rtol=1e-6)
    close(step.update, jax.tree.map(lambda leaf: np.tensordot(share, leaf, 1), updates.update))
    assert method.update(server, clients, step, ServerStep(jnp.int32(0), jax.random.key(0)))


@pytest.mark.slow
def test_lots_are_fair_and_the_absent_come_last() -> None:
    keys = jax.vmap(lambda i: jax.random.key_data(jax.random.key(i)))(jnp.arange(5))
    weights = jnp.asarray([1.0, 0, 2, 0, 3])
    members = np.asarray(draw_subsets(keys, weights, 400, 0.4))
    assert members.shape == (400, 5)
    assert (members.sum(axis=1) == 2).all()
    assert not members[:, [1, 3]].any()
    np.testing.assert_allclose(members[:, [0, 2, 4]].mean(axis=0), 2 / 3, atol=0.1)
    order = jnp.asarray([3, 4, 0, 2, 1])
    np.testing.assert_array_equal(draw_subsets(keys[order], weights[order], 400, 0.4), members[:, order])
    assert np.asarray(draw_subsets(keys, weights, 3, 1.0)).all()
    twenty = jnp.tile(keys, (4, *[1] * (keys.ndim - 1)))
    assert (np.asarray(draw_subsets(twenty, jnp.ones(20), 3, 0.55)).sum(axis=1) == 11).all(), ".55 of 20 are 11"


@pytest.mark.slow
def test_lots_are_drawn_anew_in_every_round() -> None:
    case = make_case(build("rscfed", toy_federation()), plan=WHOLE)
    state, seen = case.start(), []
    for _ in range(3):
        state, _ = case.round(state, case.federation)
        seen.append(np.asarray(draw_subsets(state.clients.more.key, jnp.ones(4), 16, 0.5)))
    assert not (seen[0] == seen[1]).all()
    assert not (seen[1] == seen[2]).all()


@pytest.mark.slow
def test_the_teacher_by_hand() -> None:
    """The mean of the students at first, a moving one later; asked in evaluation, with the received statistics."""
    model, rng = tiny_model("norm"), np.random.default_rng(0)
    objective = mean_teacher(model, unchanged_images, decay=0.6, temperature=0.5)
    received = model.init(jax.random.key(0))
    variables = received | {"teacher": new_teacher(model.init(jax.random.key(1)))}
    images = jnp.asarray(rng.normal(size=(4, *IMAGE)), jnp.float32)
    batch = Batch(images, jnp.zeros(4, jnp.int32), jnp.asarray([1.0, 1, 1, 0]))
    rest = (batch, jax.random.key(0), Context((), (), variables, jnp.int32(0)))

    def probabilities(weights: Any, train: bool) -> np.ndarray:
        logits = np.asarray(model.apply(weights, images, train, jax.random.key(0))[0].logits, np.float64)
        return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    teacher = np.zeros(())
    for share in (0, 1 / 2, 0.6, 0.6):
        loss, changed = objective(variables, *rest)
        teacher = share * teacher + (1 - share) * flat(variables["params"])
        np.testing.assert_allclose(flat(changed["teacher"]["params"]), teacher, rtol=1e-4, atol=1e-6)
        sharp = probabilities(received | {"params": changed["teacher"]["params"]}, False) ** 2
        apart = (probabilities(student_of(variables), True) - sharp / sharp.sum(axis=1, keepdims=True)) ** 2
        np.testing.assert_allclose(loss, apart[:3].sum() / 3, rtol=1e-4)
        moved = jax.tree.map(lambda leaf: leaf + 0.3, variables["params"])
        variables = variables | changed | {"params": moved}
    assert changed["teacher"]["steps"] == 4


@pytest.mark.slow
def test_no_gradient_reaches_the_teacher() -> None:
    """The gradient is that of a fixed target."""
    model = tiny_model()
    objective = mean_teacher(model, unchanged_images, decay=0.999, temperature=1.0)
    variables = model.init(jax.random.key(0))
    variables |= {"teacher": new_teacher(variables)}
    images = jnp.asarray(np.random.default_rng(0).normal(size=(4, *IMAGE)), jnp.float32)
    batch, context = Batch(images, jnp.zeros(4, jnp.int32), jnp.ones(4)), Context((), (), variables, jnp.int32(0))
    _, changed = objective(variables, batch, jax.random.key(0), context)
    away = jax.tree.map(lambda leaf: leaf + 0.1, variables["params"])

    def loss(params: Any, target: Any) -> jax.Array:
        student, teacher = (
            jax.nn.softmax(model.apply({"params": p}, images, False, jax.random.key(0))[0].logits)
            for p in (params, target)
        )
        return jnp.mean(jnp.sum(jnp.square(student - teacher), axis=1))

    target = jax.tree.map(lambda t, s: 0.5 * t + 0.5 * s, changed["teacher"]["params"], away)
    inner = variables | changed
    got = jax.jit(jax.grad(lambda p: objective(inner | {"params": p}, batch, jax.random.key(0), context)[0]))(away)
    close(got, jax.jit(jax.grad(loss))(away, target))


def test_teachers_do_not_travel() -> None:
    mine, theirs = (traffic(shared_method(name, "norm"), toy_federation()) for name in ("rscfed", "ssfl"))
    assert bytes_of(mine.sent) == bytes_of(theirs.sent)
    assert bytes_of(mine.message) == bytes_of(theirs.message)


def test_the_optimiser_is_the_official_one() -> None:
    """README and options of the official code: SGD with momentum, kept over the rounds, clipped gradients."""
    h = RSCFed()
    assert (h.client_optimizer, h.client_learning_rate, h.client_momentum) == ("sgd", 0.021, 0.9)
    assert (h.client_weight_decay, h.client_clip, h.client_schedule) == (5e-4, 5.0, "constant")
    assert build("rscfed", toy_federation()).keep_optimizer


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ratio"), [("sgd", 4.0), ("adam", 1.0)])
def test_the_weight_of_consistency_is_nothing_to_adam(name: str, ratio: float) -> None:
    """One step of a client on r = 0.02 and on four times as much."""
    plan = make_plan(epochs=1)
    bare = {"client_optimizer": name, "client_momentum": 0.0, "client_weight_decay": 0.0, "client_clip": 0.0}
    ways = []
    for consistency in (0.5, 2.0):
        federation = toy_federation((4, 4, 4, 4))
        method = build("rscfed", federation, consistency=consistency, augmentation="none", **TOGETHER, **bare)
        case = make_case(method._replace(server_training=None), federation, plan)
        before = flat(case.start().server.variables)
        ways.append(flat(case.advance(1).server.variables) - before)
    seen = np.abs(ways[0]) > 1e-5
    assert seen.sum() > 5
    np.testing.assert_allclose(ways[1][seen] / ways[0][seen], ratio, rtol=0.03)


@pytest.mark.slow
def test_the_server_may_have_a_rate_of_its_own() -> None:
    """Official code: 0.03 with labels, 0.021 without."""
    bare = {"consistency": 0.0, "client_weight_decay": 0.0, "client_momentum": 0.0, "client_clip": 0.0}
    plan, ways = make_plan(epochs=1), []
    for chosen in ({}, {"labelled_learning_rate": 0.02}):
        federation = toy_federation()._replace(server=rows_of([4], 23, 4))
        case = make_case(build("rscfed", federation, **bare, client_learning_rate=0.01, **chosen), federation, plan)
        ways.append(flat(case.advance(1).server.variables) - flat(case.start().server.variables))
    np.testing.assert_allclose(ways[1], 2 * ways[0], rtol=1e-3, atol=1e-6)
