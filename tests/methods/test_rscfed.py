"""RSCFed: its teacher by hand, its lots, and what it reduces to."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context, Moment
from fdgjax.engine.round import train_server
from fdgjax.engine.traffic import traffic
from fdgjax.methods.rscfed import draw_subsets, ramp_up
from fdgjax.objectives import mean_teacher, student_of, teacher_of, with_teacher
from fdgjax.variables import bytes_of
from fdgjax.views import plain
from tests.toys import IMAGE, build, close, flat, make_case, make_plan, shared_method, tiny_model, toy_federation

WHOLE = make_plan("map", drop_nonfinite=True)
TOGETHER: dict[str, Any] = {"subsets": 1, "share": 1.0, "beta": 0.0}


def test_without_consistency_only_the_server_trains() -> None:
    case = make_case(build("rscfed", toy_federation(), consistency=0.0, client_weight_decay=0.0), plan=WHOLE)
    state, server = case.start(), case.start().server
    wanted, _ = jax.jit(lambda s: train_server(case.method.stage, WHOLE, state, s, case.federation))(server)
    close(case.advance(1).server, wanted)


def test_one_sub_set_of_everybody_is_the_weighted_mean() -> None:
    method, federation = build("rscfed", toy_federation(), **TOGETHER), toy_federation()
    server, clients = method.init(jax.random.key(0), federation)
    message = traffic(method, federation).message
    rng = np.random.default_rng(0)
    updates = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=(4, *leaf.shape)), jnp.float32), message)
    weights = method.weights(federation.train.length)
    step, info = method.aggregate(server, clients, updates, weights)
    share = np.asarray(weights) / np.asarray(weights).sum()
    np.testing.assert_allclose(info["weights"], share, rtol=1e-6)
    close(step.update, jax.tree.map(lambda leaf: np.tensordot(share, leaf, 1), updates.update))
    assert method.update(server, clients, step, Moment(jnp.int32(0), jax.random.key(0)))


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


def test_lots_are_drawn_anew_in_every_round() -> None:
    case = make_case(build("rscfed", toy_federation()), plan=WHOLE)
    state, seen = case.start(), []
    for _ in range(3):
        state, _ = case.round(state, case.federation)
        seen.append(np.asarray(draw_subsets(state.clients.memory, jnp.ones(4), 16, 0.5)))
    assert not (seen[0] == seen[1]).all()
    assert not (seen[1] == seen[2]).all()


def test_the_teacher_by_hand() -> None:
    """Two steps: the teacher has followed the first one when it is asked in the second."""
    model, rng = tiny_model(), np.random.default_rng(0)
    objective = mean_teacher(model, plain, decay=0.9, temperature=0.5)
    variables = with_teacher(model.init(jax.random.key(0)))
    images = jnp.asarray(rng.normal(size=(4, *IMAGE)), jnp.float32)
    batch = Batch(images, jnp.zeros(4, jnp.int32), jnp.asarray([1.0, 1, 1, 0]))
    rest = (batch, jax.random.key(0), Context((), (), {}, jnp.int32(0)))

    def probabilities(weights: Any) -> np.ndarray:
        logits = np.asarray(model.apply(weights, images, True, jax.random.key(0))[0].logits, np.float64)
        return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    teacher, student = flat(variables["teacher"]), student_of(variables)
    for step in range(2):
        loss, (changed, _) = objective(variables, *rest)
        teacher = 0.9 * teacher + 0.1 * flat(student)
        np.testing.assert_allclose(flat(changed["teacher"]), teacher, rtol=1e-5, atol=1e-7)
        sharp = probabilities(changed["teacher"]) ** 2
        apart = (probabilities(student) - sharp / sharp.sum(axis=1, keepdims=True)) ** 2
        np.testing.assert_allclose(loss, apart[:3].mean(), rtol=1e-4)
        student = jax.tree.map(lambda leaf, step=step: leaf + 0.1 * (step + 1), student)
        variables = {**student, "teacher": changed["teacher"]}
    close(teacher_of(variables, 0.0), student)

    # No gradient goes through the teacher: it is the one of a fixed target.
    def towards(params: Any) -> jax.Array:
        fixed = {**variables, "teacher": teacher_of(variables, 0.9)}
        return mean_teacher(model, plain, decay=1.0, temperature=0.5)({**fixed, "params": params}, *rest)[0]

    gradient = jax.grad(lambda params: objective({**variables, "params": params}, *rest)[0])(variables["params"])
    close(gradient, jax.grad(towards)(variables["params"]))


@pytest.mark.parametrize("round_", [0, 15, 30, 99])
def test_the_ramp(round_: int) -> None:
    wanted = np.exp(-5 * (1 - min(round_ / 30, 1)) ** 2)
    np.testing.assert_allclose(ramp_up(jnp.int32(round_), 30), wanted, rtol=1e-5)
    assert ramp_up(jnp.int32(round_), 0) == 1


def test_teachers_do_not_travel() -> None:
    mine, theirs = (traffic(shared_method(name, "norm"), toy_federation()) for name in ("rscfed", "ssfl"))
    assert bytes_of(mine.sent) == bytes_of(theirs.sent)
    assert bytes_of(mine.message) == bytes_of(theirs.message)
    assert bytes_of(mine.received) == 2 * bytes_of(theirs.received)


def test_a_teacher_that_is_sent_moves_less() -> None:
    method = {name: build("rscfed", toy_federation(), "norm", upload=name) for name in ("student", "teacher")}
    variables = with_teacher(tiny_model("norm").init(jax.random.key(0)))
    moved = {**jax.tree.map(lambda leaf: leaf + 1, student_of(variables)), "teacher": variables["teacher"]}
    for name, way in (("student", 1.0), ("teacher", 0.001)):
        own = method[name].trained
        assert own is not None
        np.testing.assert_allclose(
            flat(own(moved)["params"]) - flat(variables["teacher"]["params"]), way, rtol=1e-2, atol=1e-6
        )
