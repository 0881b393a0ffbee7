"""What several processes do with the engine, tried in one: images at their own devices, a mesh of the caller's; and a
whole round is a differentiable function."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from fdgjax.contract import Execution, PyTree
from fdgjax.data.sharded import shard_images
from fdgjax.engine import State
from fdgjax.engine.clients import everywhere
from fdgjax.engine.devices import each_process, suitable_devices
from fdgjax.engine.round import run_round
from fdgjax.engine.sharding import on_every_device, own_samples
from fdgjax.experiments import on_callers_mesh
from fdgjax.utils.errors import UserError
from tests.runs import small
from tests.toys import CLIENTS, Case, build, close, make_case, make_plan, shared_case, toy_federation

THREE = Execution("map", 2, 3)


@pytest.mark.slow
def test_each_device_needs_no_more_than_the_images_of_its_clients_and_of_the_unseen_domain() -> None:
    case = shared_case("fedavg", plan=make_plan(devices=3))
    place = everywhere(THREE)
    assert place is not None
    held = shard_images(np.asarray(case.federation.inputs), own_samples([case.federation], 3), place)
    assert held.pixels.addressable_shards[0].data.shape[0] < len(case.federation.labels)
    apart = on_every_device(case.federation._replace(inputs=jnp.zeros(1)), place)._replace(inputs=held)
    one_round = jax.jit(functools.partial(run_round, case.method, case.plan), out_shardings=place)
    state, info = one_round(jax.device_put(case.start(), place), apart)
    wanted, same = case.round(case.start(), case.federation)
    chex.assert_trees_all_equal(jax.device_get((state, info)), jax.device_get((wanted, same)))


def test_images_that_any_seed_uses_are_at_the_device() -> None:
    federation = toy_federation()
    other = federation._replace(train=jax.tree.map(lambda leaf: leaf[::-1], federation.train))
    place = everywhere(THREE)
    assert place is not None
    images = np.asarray(federation.inputs)
    held = shard_images(images, own_samples([federation, other], place.mesh.size), place)
    share = -(-CLIENTS // 3)
    for device, (pixels, where) in enumerate(
        zip(*(leaf.addressable_shards for leaf in (held.pixels, held.where)), strict=True)
    ):
        mine = slice(device * share, (device + 1) * share)
        for one in (federation, other):
            for places, length in zip(
                np.asarray(one.train.places)[mine], np.asarray(one.train.length)[mine], strict=True
            ):
                rows = places[:length]
                np.testing.assert_array_equal(np.asarray(pixels.data)[np.asarray(where.data)[rows]], images[rows])


def mesh(shape: tuple[int, ...] = (2, 1), kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    """The caller's mesh of two axes, on devices that are not JAX's first."""
    names = ("host", "chip")[: len(shape)]
    return jax.make_mesh(shape, names, axis_types=(kind,) * len(shape), devices=jax.devices()[2:4])


@pytest.mark.slow
def test_a_round_runs_on_the_callers_mesh() -> None:
    own = mesh()
    plan = make_plan("map")._replace(execution=Execution("map", 2, 2, mesh=own))
    case = shared_case("fedavg", plan=plan)
    state, _ = case.round(*jax.device_put((case.start(), case.federation), everywhere(plan.execution)))
    assert {one for leaf in jax.tree.leaves(state) for one in leaf.devices()} == set(own.devices.flat)
    close(state, shared_case("fedavg", plan=make_plan("map")).advance(1))


def test_an_experiment_takes_the_callers_mesh(cache: Any) -> None:
    with jax.set_mesh(mesh()):
        config, found = on_callers_mesh(small(cache, model="digits_cnn", devices=0))
        assert (config.devices, found) == (2, mesh())
        with pytest.raises(UserError, match=r"config.devices got 3 and the mesh of jax.set_mesh has 2 devices"):
            on_callers_mesh(small(cache, model="digits_cnn", devices=3))
    with jax.set_mesh(mesh(kind=AxisType.Explicit)), pytest.raises(UserError, match="expected Auto"):
        on_callers_mesh(small(cache, model="digits_cnn", devices=0))
    assert on_callers_mesh(small(cache, model="digits_cnn", devices=0))[1] is None


@pytest.mark.parametrize(("clients", "devices"), [(1, 2), (4, 4), (5, 6), (9, 6), (40, 8)])
def test_every_process_gives_as_many_devices(clients: int, devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgjax.engine.devices.each_process", lambda: [[None] * 4, [None] * 5])
    assert suitable_devices([np.ones(clients, int)], 1, 1) == devices
    monkeypatch.undo()
    assert sum(map(len, each_process())) == len(jax.devices())


def test_a_share_that_is_not_whole_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgjax.engine.clients.each_process", lambda: [jax.devices()[:2], jax.devices()[2:4]])
    with pytest.raises(UserError, match=r"config.devices got 3; expected a multiple of 2, the number of processes"):
        everywhere(THREE)
    with pytest.raises(UserError, match=r"config.devices got 6; expected at most 4"):
        everywhere(Execution(devices=6))


def after(case: Case, state: State, server: PyTree) -> jax.Array:
    """The mean training loss of the round after one round from this server state."""
    state = state._replace(server=server)
    for _ in range(2):
        state, info = run_round(case.method, case.plan, state, case.federation)
    return jnp.mean(info.loss)


@pytest.mark.slow
def test_the_derivative_of_a_loss_after_a_round_is_that_of_finite_differences() -> None:
    # As many steps for each client: a loop whose length is data has no derivative backwards.
    method = build("fedavg", toy_federation(), client_momentum=0.0)
    case = make_case(method, plan=make_plan("vmap", epochs=1))
    state = case.start()
    loss = jax.jit(functools.partial(after, case, state))
    gradient = jax.jit(jax.grad(functools.partial(after, case, state), allow_int=True))(state.server)
    rng = np.random.default_rng(0)
    floats = lambda tree: [leaf for leaf in jax.tree.leaves(tree) if leaf.dtype == jnp.float32]  # noqa: E731
    assert all(np.isfinite(leaf).all() for leaf in floats(gradient))
    along = jax.tree.map(
        lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32) if leaf.dtype == jnp.float32 else None,
        state.server,
    )
    step = 3e-4

    def moved(sign: float) -> float:
        where = jax.tree.map(
            lambda leaf, way: leaf if way is None else leaf + np.float32(sign * step) * way, state.server, along
        )
        return float(loss(where))

    slope = (moved(1) - moved(-1)) / (2 * step)
    product = sum(float(np.vdot(one, way)) for one, way in zip(floats(gradient), jax.tree.leaves(along), strict=True))
    assert abs(slope) > 0.01, "a direction along which nothing changes would show nothing"
    np.testing.assert_allclose(product, slope, rtol=2e-3)
