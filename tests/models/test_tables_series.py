"""The networks of tables and series, computed once more by NumPy and by XLA's own convolution."""

from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fdgjax.models import MLP, MODELS, UNITS, Conv1D, Linear
from fdgjax.models.client_model import as_model
from fdgjax.models.units import along_time
from fdgjax.nn import Conv
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import norm_paths

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(6, 5)).astype(np.float32)
SERIES = RNG.normal(size=(3, 4, 21, 2)).astype(np.float32)
"""Of three clients, four of 21 points each."""
KEY = jax.random.key(2)


@pytest.mark.slow
def test_linear_is_softmax_regression_and_its_features_are_its_inputs() -> None:
    model = as_model(Linear(3), (5,))
    variables = model.init(KEY)
    output, _ = model.apply(variables, jnp.asarray(ROWS), True, KEY)
    head = jax.device_get(variables["params"]["head"])
    np.testing.assert_allclose(output.logits, ROWS @ head["kernel"] + head["bias"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(output.features, ROWS)


@pytest.mark.slow
def test_inputs_of_several_axes_are_flattened() -> None:
    for network in (Linear(3), MLP(3)):
        variables = network.init(KEY, jnp.zeros((1, 8)))
        x = RNG.normal(size=(2, 4, 2)).astype(np.float32)
        np.testing.assert_array_equal(network.apply(variables, x), network.apply(variables, x.reshape(2, 8)))


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [(7,), (8, 6, 4)])
def test_mlp_is_what_numpy_computes(hidden: tuple[int, ...]) -> None:
    model = as_model(MLP(3, hidden=hidden), (5,))

    @jax.jit
    def started(x: jax.Array) -> Any:
        variables = model.init(KEY)
        return variables, model.apply(variables, x, False, KEY)[0]

    variables, output = started(ROWS)
    layers: Any = variables["params"]
    x = ROWS
    for number, features in enumerate(hidden, 1):
        layer = layers[f"hidden_{number}"]
        x = np.maximum(x @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"]), 0)
        assert x.shape == (6, features)
    np.testing.assert_allclose(output.features, x, rtol=1e-5, atol=1e-6)
    expected = x @ np.asarray(layers["head"]["kernel"]) + np.asarray(layers["head"]["bias"])
    np.testing.assert_allclose(output.logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_dropout_is_in_training_alone_and_keeps_the_mean() -> None:
    network = MLP(2, hidden=(2000,), dropout=0.25)
    variables, x = network.init(KEY, ROWS[:1]), ROWS[:1]

    def features(train: bool) -> np.ndarray:
        _, sown = network.apply(variables, x, train=train, rngs={"dropout": KEY}, mutable=["intermediates"])
        return np.asarray(sown["intermediates"]["features"][0][0])

    whole, thinned = features(False), features(True)
    alive = whole > 0
    kept = thinned[alive] != 0
    assert abs(kept.mean() - 0.75) < 0.05  # 3.5 standard deviations of a share of about 1000
    np.testing.assert_allclose(thinned[alive][kept], whole[alive][kept] / 0.75, rtol=1e-5)


def by_xla(variables: Any, series: jax.Array) -> jax.Array:
    """`conv1d` with plain units by XLA's convolution of one spatial axis."""
    x = series
    for number in (1, 2, 3):
        layer = variables["params"][f"conv_{number}"]
        x = lax.conv_general_dilated(x, layer["kernel"][:, 0], (2,), [(2, 2)], dimension_numbers=("NHC", "HIO", "NHC"))
        x = jnp.maximum(x + layer["bias"][None, None], 0)
    head = variables["params"]["head"]
    return x.mean(1) @ head["kernel"] + head["bias"][None]


@pytest.mark.slow
def test_conv1d_and_its_gradients_are_xlas_with_and_without_a_client_axis() -> None:
    network = Conv1D(3, width=0.25, unit=UNITS["plain"])
    keys = jax.random.split(KEY, 3)

    @jax.jit
    def results(x: jax.Array) -> Any:
        clients = jax.vmap(lambda key, one: network.init(key, one))(keys, x)
        first = jax.tree.map(lambda leaf: leaf[0], clients)
        found = []
        for apply in (network.apply, by_xla):
            loss = lambda v, one, apply=apply: jnp.sum(jnp.sin(apply(v, one)))  # noqa: E731
            alone, together = jax.value_and_grad(loss), jax.vmap(jax.value_and_grad(loss, argnums=(0, 1)))
            found.append((alone(first, x[0]), together(clients, x)))
        return found

    ours, xlas = results(jnp.asarray(SERIES))
    chex.assert_trees_all_close(ours, xlas, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 7, 128])
def test_conv1d_takes_series_of_any_length(length: int) -> None:
    variables = jax.eval_shape(Conv1D(3).init, KEY, jnp.zeros((1, 16, 2)))
    logits = jax.eval_shape(Conv1D(3).apply, variables, jnp.zeros((4, length, 2)))
    assert logits.shape == (4, 3)


@pytest.mark.slow
def test_a_late_point_does_not_reach_early_features() -> None:
    """The convolutions see time, not channels or samples: a change at point 40 leaves what lies 15 points before."""
    network = Conv1D(2, width=0.25, unit=UNITS["plain"])
    x = RNG.normal(size=(1, 64, 2)).astype(np.float32)
    variables = network.init(KEY, x)
    changed = x.copy()
    changed[:, 40] += 1
    before, after = (last_convolution(network, variables, one) for one in (x, changed))
    differs = (before != after).any(axis=(0, 2, 3))
    centres = 8 * np.arange(8)
    np.testing.assert_array_equal(differs, abs(centres - 40) <= 14)


def last_convolution(network: Conv1D, variables: Any, x: np.ndarray) -> np.ndarray:
    """What the third convolution gives before its ReLU, `[batch, time, 1, channels]`."""
    _, found = network.apply(variables, x, capture_intermediates=True, mutable=["intermediates"])
    return np.asarray(found["intermediates"]["conv_3"]["__call__"][0])


@pytest.mark.slow
def test_skew_erasers_of_series_look_along_time_alone() -> None:
    """No weight of a depthwise kernel sees padding alone, so that each has a gradient."""
    block: Any = along_time(UNITS["dse"])(partial(Conv, kernel_size=(5, 1)), 8)
    x = jnp.asarray(SERIES[0][:, :, None])

    @jax.jit
    def slope(x: jax.Array) -> jax.Array:
        variables = block.init(KEY, x)

        def loss(params: Any) -> jax.Array:
            y, _ = block.apply({**variables, "params": params}, x, train=True, mutable=["batch_stats"])
            return jnp.sum(jnp.sin(y))

        return jax.grad(loss)(variables["params"])["dse"]["kernel"]

    assert slope(x).shape == (3, 1, 1, 4)
    assert (jnp.abs(slope(x)) > 0).all()


def test_other_units_are_the_same_along_time() -> None:
    for name in ("plain", "norm", "augmented", "assembled"):
        assert along_time(UNITS[name]) is UNITS[name]


@pytest.mark.parametrize(("name", "unit"), [("mlp", "norm"), ("mlp", "dse"), ("conv1d", "norm"), ("conv1d", "dse")])
def test_fedbn_finds_batch_norm(name: str, unit: str) -> None:
    model = as_model(MODELS[name](2, unit=UNITS[unit]), MODELS[name].sample)
    assert len(norm_paths(jax.eval_shape(model.init, KEY))) > 0


def test_mistakes_are_one_line() -> None:
    with pytest.raises(UserError, match=r"conv1d' got samples of shape \[5\]; expected series") as table:
        Conv1D(2).init(KEY, ROWS)
    with pytest.raises(UserError, match="'linear' has no units to replace") as units:
        Linear(2, unit=UNITS["norm"]).init(KEY, ROWS)
    assert "\n" not in f"{table.value}{units.value}"
