"""Local training: every sample once per epoch, nobody else's data, and BatchNorm's statistics where they belong."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Batch, Context, Method, Model, Output, Setup
from fdgjax.engine import State
from fdgjax.engine.local import slice_rows, take_batch
from fdgjax.methods import METHODS
from tests.toys import (
    BATCH,
    Case,
    build,
    close,
    flat,
    make_case,
    make_plan,
    row,
    rows_of,
    shared_case,
    small_hyper,
    toy_federation,
)

SAMPLES = 48


@functools.cache
def counting_case(axis: str, drop_last: bool, epochs: int) -> Case:
    """Each client's parameters count how often it saw each sample: the gradient of the objective is minus the count."""
    federation = toy_federation()
    images = jnp.broadcast_to(jnp.arange(SAMPLES, dtype=jnp.uint8)[:, None, None, None], (SAMPLES, 1, 1, 1))
    federation = federation._replace(inputs=images)
    output = Output(jnp.zeros((BATCH, 3)), jnp.zeros((BATCH, 0)))
    model = Model(lambda key: {"params": {"seen": jnp.zeros(SAMPLES)}}, lambda *args: (output, {}))

    def objective(variables: dict, batch: Batch, key: jax.Array, context: Context) -> tuple:
        sample = jnp.round((batch.inputs[:, 0, 0, 0] + 1) * 127.5).astype(jnp.int32)
        return -jnp.sum(variables["params"]["seen"][sample] * batch.mask), {}

    method = METHODS["local"].build(Setup(model, 4, 3), small_hyper("local"))
    method = method._replace(objective=objective, optimizer=optax.sgd(1.0))
    return make_case(method, federation, make_plan(axis, drop_last=drop_last, epochs=epochs))


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["map", "vmap"])
@settings(derandomize=True, deadline=None, max_examples=15)
@given(lengths=st.lists(st.integers(1, 9), min_size=4, max_size=4), seed=st.integers(0, 99))
def test_every_sample_exactly_once_per_epoch(axis: str, lengths: list[int], seed: int) -> None:
    case = counting_case(axis, False, 3)
    federation = case.federation._replace(train=rows_of(lengths, 3, 9))
    state = case.advance(1, seed, federation)
    for client, length in enumerate(lengths):
        wanted = np.zeros(SAMPLES)
        wanted[np.asarray(federation.train.places)[client, :length]] = 3
        np.testing.assert_array_equal(state.clients.local["params"]["seen"][client], wanted)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=15)
@given(lengths=st.lists(st.integers(1, 9), min_size=4, max_size=4), seed=st.integers(0, 99))
def test_whole_batches_only_where_partial_ones_are_left_out(lengths: list[int], seed: int) -> None:
    case = counting_case("map", True, 1)
    federation = case.federation._replace(train=rows_of(lengths, 3, 9))
    state = case.advance(1, seed, federation)
    for client, length in enumerate(lengths):
        seen = np.asarray(state.clients.local["params"]["seen"][client])
        own = np.asarray(federation.train.places)[client, :length]
        assert set(seen[own]) <= {0, 1}
        assert seen.sum() == seen[own].sum() == length // BATCH * BATCH


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=30)
@given(count=st.integers(0, 9), size=st.integers(1, 5))
def test_slices_cover_the_rows_once(count: int, size: int) -> None:
    rows = jnp.arange(100, 109)
    slices = [slice_rows(rows, jnp.asarray(count), start, size) for start in range(0, 9, size)]
    assert np.concatenate([np.asarray(part)[np.asarray(mask)] for part, mask in slices]).tolist() == list(
        range(100, 100 + count)
    )
    assert all(part.shape == mask.shape == (size,) for part, mask in slices)


def darkened(key: jax.Array, images: jax.Array) -> jax.Array:
    return (images + 1) * jax.random.uniform(key, (len(images), 1, 1, 1)) - 1


@functools.cache
def augmented_case(axis: str) -> Case:
    plain = counting_case(axis, False, 3)

    def objective(variables: dict, batch: Batch, key: jax.Array, context: Context) -> tuple:
        # The gradient of the n-th number is minus the brightness of all images seen so far whose label is n.
        return -jnp.sum(variables["params"]["seen"][batch.labels] * (batch.inputs[:, 0, 0, 0] + 1) * batch.mask), {}

    plan = plain.plan._replace(batching=plain.plan.batching._replace(augment=darkened))
    bright = plain.federation._replace(inputs=jnp.full((SAMPLES, 1, 1, 1), 255, jnp.uint8))
    return make_case(plain.method._replace(objective=objective), bright, plan)


@pytest.mark.slow
def test_augmentation_is_drawn_anew_for_each_batch_and_the_same_however_clients_are_run() -> None:
    found = []
    for axis in ("map", "vmap"):
        case = augmented_case(axis)
        one, again, other = (case.advance(1, seed).clients.local["params"]["seen"] for seed in (0, 0, 1))
        np.testing.assert_array_equal(one, again)
        assert not np.allclose(one, other)
        two = case.advance(2).clients.local["params"]["seen"]
        assert not np.allclose(two, 2 * one), "another round draws anew"
        found.append(two)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    # All images are white, brightness 2; three epochs of uniform draws leave half of it.
    lengths = np.asarray(augmented_case("map").federation.train.length)
    share = np.asarray(found[0]).sum(axis=1) / (2 * 3 * 2 * lengths)
    assert (share > 0.2).all()
    assert (share < 0.8).all()


@pytest.mark.slow
def test_images_travel_as_bytes_and_arrive_between_minus_one_and_one() -> None:
    federation = toy_federation()._replace(inputs=jnp.asarray([0, 255, 51], jnp.uint8)[:, None, None, None])
    batch = take_batch(federation, jnp.asarray([2, 0, 1]), jnp.asarray([True, True, False]))
    np.testing.assert_allclose(batch.inputs.ravel(), [-0.6, -1, 1], rtol=1e-6)
    np.testing.assert_array_equal(batch.labels, np.asarray(federation.labels)[[2, 0, 1]])
    np.testing.assert_array_equal(batch.mask, np.array([1, 1, 0], np.float32))


@functools.cache
def norm_case(name: str) -> Case:
    # Whole batches only, so that what BatchNorm does with padding is a question of its own (below).
    federation = toy_federation((4, 8, 8, 4))
    return make_case(build(name, federation, "norm"), federation)


def own_statistics(method: Method, state: State, client: int) -> np.ndarray:
    return flat(method.predict(state.server, row(state.clients, client))["batch_stats"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "pfedhn"])
def test_statistics_that_are_local_stay_with_their_client(name: str) -> None:
    case = norm_case(name)
    assert {case.method.label(f"batch_stats/norm/{leaf}") for leaf in ("mean", "var")} == {"local"}
    state = case.advance(1)
    statistics = [own_statistics(case.method, state, client) for client in range(4)]
    assert all(not np.allclose(statistics[0], other) for other in statistics[1:])
    assert "batch_stats" not in (state.server.variables if name == "local" else {})


@pytest.mark.slow
def test_statistics_that_are_shared_are_averaged() -> None:
    case, alone = norm_case("fedavg"), norm_case("local")
    assert case.method.label("batch_stats/norm/mean") == "shared"
    # In the first round all clients of either method start from the same model.
    start, locally = case.start(), alone.advance(1).clients.local
    np.testing.assert_array_equal(flat(start.server.variables), flat(row(alone.start().clients, 0)))
    state = case.advance(1)
    counts = np.array([4, 8, 8, 4], np.float64)
    wanted = jax.tree.map(lambda leaf: np.tensordot(counts / counts.sum(), np.asarray(leaf, np.float64), 1), locally)
    close(state.server.variables, wanted)
    assert not jax.tree.leaves(state.clients)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["dense", "dropout", "norm"])
def test_a_client_learns_from_its_own_data_alone(model: str) -> None:
    """Other clients' images, the target's included, are replaced; a partial batch must not show them."""
    case = shared_case("local", model, make_plan())
    federation, client = case.federation, 2
    mine = np.asarray(federation.train.places)[client, : int(federation.train.length[client])]
    images = jnp.asarray(federation.inputs)
    others = np.setdiff1d(np.arange(len(images)), mine)
    altered = federation._replace(inputs=images.at[others].set(255 - images[others]))
    close(row(case.advance(2, federation=altered).clients, client), row(case.advance(2).clients, client))
