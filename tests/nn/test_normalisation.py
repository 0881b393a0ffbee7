"""BatchNorm: Flax's own layer, whatever is differentiated or mapped, in one part or several; or PyTorch's. GroupNorm:
Flax's own."""

from functools import partial
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.nn import BatchNorm, BatchStatistics, GroupNorm, recording_moments, with_mask, with_statistics
from tests.conformance import check
from tests.conformance.networks import BATCH, PARTIAL, batch_norm_given

OPTIONS: dict[str, Any] = {"momentum": 0.8, "epsilon": 1e-3}
SHAPE = (4, 3, 2, 5)
COLLECTIONS = {"params": ("scale", "bias"), "batch_stats": ("mean", "var")}


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[jax.Array]:
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(0.5, 2.0, size=shape), jnp.float32) for shape in shapes]


def variables_of(channels: int, seed: int = 1) -> Any:
    scale, bias, mean, var = arrays(*[(channels,)] * 4, seed=seed)
    return {"params": {"scale": scale, "bias": bias}, "batch_stats": {"mean": mean, "var": jnp.abs(var)}}


def flaxs(variables: Any, x: jax.Array, train: bool = True) -> Any:
    return nn.BatchNorm(use_running_average=not train, **OPTIONS).apply(variables, x, mutable=["batch_stats"])


def ours(variables: Any, x: jax.Array, train: bool = True, at: tuple[int, ...] = ()) -> Any:
    layer = BatchNorm(use_running_average=not train, **OPTIONS)
    parts, changed = layer.apply(variables, jnp.split(x, at, axis=-1), mutable=["batch_stats"])
    return jnp.concatenate(parts, axis=-1), changed


def close(got: Any, expected: Any) -> None:
    chex.assert_trees_all_equal_shapes_and_dtypes(got, expected)
    chex.assert_trees_all_close(got, expected, rtol=1e-4, atol=1e-4)


def with_gradients(apply: Any, variables: Any, x: jax.Array) -> Any:
    """Results, and their gradients with cotangents on the output and on the kept statistics alike."""

    @jax.jit
    def both(variables: Any, x: jax.Array) -> Any:
        results, pullback = jax.vjp(apply, variables, x)
        return results, pullback(jax.tree.map(lambda leaf: jnp.sin(3 * leaf), results))

    return both(variables, x)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    ("leading", "channels", "at"), [((1,), 5, ()), ((3, 2), 2, (1, 1)), ((2, 1, 3), 5, (3, 2)), ((3, 2), 5, (3, 2))]
)
def test_value_statistics_and_gradients_are_flaxs(
    leading: tuple[int, ...], channels: int, at: tuple[int, ...], train: bool
) -> None:
    (x,), variables = arrays((4, *leading, channels)), variables_of(channels)
    cuts = tuple(sorted(min(cut, channels) for cut in at if 0 < cut < channels))
    close(
        with_gradients(partial(ours, train=train, at=cuts), variables, x),
        with_gradients(partial(flaxs, train=train), variables, x),
    )


@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("leading", [(5,), (5, 4, 3), (0, 4, 3)])
def test_group_norm_and_its_gradients_are_flaxs(leading: tuple[int, ...], groups: int) -> None:
    (x,), params = arrays((*leading, 6)), variables_of(6)["params"]
    layers = (GroupNorm(groups, 1e-3), nn.GroupNorm(groups, epsilon=1e-3))
    got, wanted = (with_gradients(lambda own, x, of=layer: of.apply({"params": own}, x), params, x) for layer in layers)
    close(got, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_client_axes(axes: Any) -> None:
    clients = 3
    (x,) = arrays((clients, *SHAPE) if axes[1] == 0 else SHAPE)
    variables = variables_of(SHAPE[-1])
    if axes[0] == 0:
        variables = jax.tree.map(lambda leaf: jnp.stack([leaf * (i + 1) for i in range(clients)]), variables)
    close(*(jax.vmap(partial(with_gradients, apply), axes)(variables, x) for apply in (ours, flaxs)))


@pytest.mark.slow
def test_forward_mode_and_second_derivatives() -> None:
    (x, direction), variables = arrays(SHAPE, SHAPE), variables_of(SHAPE[-1])

    def forward(apply: Any) -> Any:
        return jax.jit(lambda x, d: jax.jvp(partial(apply, variables), (x,), (d,)))(x, direction)

    close(forward(ours), forward(flaxs))

    def slope(apply: Any, x: jax.Array) -> jax.Array:
        def total(x: jax.Array) -> jax.Array | int:
            return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(apply(variables, x)))

        return jax.jit(jax.grad(lambda x: jnp.sum(jax.grad(total)(x) * direction)))(x)

    close(*(slope(apply, x) for apply in (ours, flaxs)))


def test_bfloat16() -> None:
    (x,), variables = arrays(SHAPE), variables_of(SHAPE[-1])
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (variables["params"], x))
    variables = {"params": half[0], "batch_stats": variables["batch_stats"]}
    y, changed = jax.jit(ours)(variables, half[1])
    with jax.numpy_dtype_promotion("standard"):  # Flax mixes the dtypes
        expected, kept = jax.jit(flaxs)(variables, half[1])
    assert y.dtype == expected.dtype == jnp.bfloat16
    chex.assert_trees_all_close(y.astype(jnp.float32), expected.astype(jnp.float32), rtol=0.02, atol=0.02)
    close(changed, kept)


@pytest.mark.slow
def test_variables_are_flaxs() -> None:
    key, (x,) = jax.random.key(0), arrays(SHAPE)
    theirs = nn.BatchNorm(use_running_average=False).init(key, x)
    chex.assert_trees_all_equal(BatchNorm(use_running_average=False).init(key, [x]), theirs)


def in_training(variables: Any, x: jax.Array, statistics: BatchStatistics, mask: jax.Array) -> Any:
    """The result for the samples where the mask is 1, the kept statistics, and the gradients of `sum sin(3 y)`."""
    real, layer = mask.reshape(-1, *(1,) * (x.ndim - 1)), BatchNorm(use_running_average=False, momentum=0.9)

    def loss(params: Any, x: jax.Array) -> Any:
        with with_mask(mask), with_statistics(statistics):
            parts, changed = layer.apply(
                {**variables, "params": params}, jnp.split(x, (2,), axis=-1), mutable=["batch_stats"]
            )
        y = jnp.concatenate(parts, axis=-1) * real
        return jnp.sum(jnp.sin(3 * y)), {"y": y} | changed["batch_stats"]

    (_, found), (of_params, of_x) = jax.value_and_grad(loss, (0, 1), has_aux=True)(variables["params"], x)
    return found | of_params | {"x": of_x}


@pytest.mark.parametrize("samples", [BATCH, PARTIAL])
def test_pytorchs_batchnorm(samples: int) -> None:
    """On a whole batch, and on the first samples of one that they fill up by repetition."""
    given, x = jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), batch_norm_given())
    variables = {of: {name: given[name] for name in names} for of, names in COLLECTIONS.items()}
    x, mask = x[jnp.arange(BATCH) % samples], (jnp.arange(BATCH) < samples).astype(jnp.float32)
    got = jax.jit(in_training, static_argnums=2)(variables, x, BatchStatistics(unbiased=True, masked=True), mask)
    assert not np.any(got["x"][samples:]), "what fills up a batch has no effect"
    got |= {name: got[name][:samples] for name in ("x", "y")}
    check(f"batch_norm_{samples}", got, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("views", [1, 2])
def test_a_masked_batch_is_the_batch_of_its_samples(views: int, unbiased: bool) -> None:
    (x,) = arrays((4, 2, 2, 3))
    real = 3
    mask = (jnp.arange(4) < real).astype(jnp.float32)
    each = [x + view for view in range(views)]
    layer = BatchNorm(use_running_average=False, **OPTIONS)

    def kept(x: jax.Array, statistics: BatchStatistics, mask: jax.Array | None = None) -> Any:
        return layer.apply(variables_of(3), [x], statistics, mask, mutable=["batch_stats"])

    (got,), got_kept = kept(jnp.concatenate(each), BatchStatistics(unbiased, masked=True), mask)
    (alone,), alone_kept = kept(jnp.concatenate([view[:real] for view in each]), BatchStatistics(unbiased))
    close((got[jnp.tile(mask, views) > 0], got_kept), (alone, alone_kept))


def test_the_unbiased_variance_is_n_over_n_minus_one_times_the_biased_one() -> None:
    (x,), variables = arrays(SHAPE), variables_of(SHAPE[-1])
    n, was, mask = x.size // SHAPE[-1], variables["batch_stats"]["var"], jnp.ones(len(x))
    run = jax.jit(in_training, static_argnums=2)
    biased, unbiased = (run(variables, x, BatchStatistics(unbiased=one), mask) for one in (False, True))
    moved, more = (one.pop("var") - 0.9 * was for one in (biased, unbiased))
    np.testing.assert_allclose(more, moved * n / (n - 1), rtol=1e-4)
    chex.assert_trees_all_equal(biased, unbiased)


def test_frozen_statistics_are_those_of_evaluation_in_training_too() -> None:
    """Results, gradients and kept statistics are those of Flax's layer with `use_running_average`."""
    (x,), variables = arrays(SHAPE), variables_of(SHAPE[-1])
    variables["batch_stats"]["var"] += 1  # a small variance makes sin(3 y) steep
    kept = BatchStatistics(True, True, frozen=lambda path: path == "")  # the path of a layer that is in no other
    got = jax.jit(in_training, static_argnums=2)(variables, x, kept, jnp.ones(len(x)))

    def loss(params: Any, x: jax.Array) -> Any:
        y: Any = nn.BatchNorm(use_running_average=True).apply({**variables, "params": params}, x)
        return jnp.sum(jnp.sin(3 * y)), y

    (_, y), (of_params, of_x) = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(variables["params"], x)
    close(got, {"y": y, "x": of_x} | of_params | variables["batch_stats"])
    chex.assert_trees_all_equal({name: got[name] for name in ("mean", "var")}, variables["batch_stats"])


@pytest.mark.parametrize("samples", [0, 1])
def test_no_sample_and_one_value_per_channel_are_finite(samples: int) -> None:
    (x,), mask = arrays((2, 3)), (jnp.arange(2) < samples).astype(jnp.float32)
    run = jax.jit(in_training, static_argnums=2)
    chex.assert_tree_all_finite(run(variables_of(3), x, BatchStatistics(unbiased=True, masked=True), mask))


@pytest.mark.slow
def test_recorded_moments_are_the_inputs_and_change_nothing() -> None:
    x = np.asarray(np.random.default_rng(3).normal(1, 2, (4, 3, 3, 5)), np.float32)
    mask = jnp.asarray([1.0, 1, 1, 0])
    for layer, name, given in (
        (BatchNorm(True, name="ours"), "parts", [x[..., :2], x[..., 2:]]),
        (nn.BatchNorm(True, name="flaxs"), "x", x),
    ):
        variables = layer.init(jax.random.key(0), given)
        found: dict[str, Any] = {}
        with recording_moments(found, mask):
            output = layer.apply(variables, given)
        chex.assert_trees_all_equal(output, layer.apply(variables, given))
        by_name: dict[str, Any] = {}
        argument: Any = {name: given}
        with recording_moments(by_name, mask):
            layer.apply(variables, **argument)
        chex.assert_trees_all_equal(by_name, found)
        ((mean, var),) = found.values()
        np.testing.assert_allclose(mean, x[:3].mean(axis=(0, 1, 2)), rtol=1e-5)
        np.testing.assert_allclose(var, x[:3].var(axis=(0, 1, 2)), rtol=1e-5)
