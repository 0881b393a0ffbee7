"""The hypernetwork: its numbers in float64 NumPy, heads for any tree of parameters, and how it starts."""

from collections.abc import Callable
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.models import DigitsCNN, InceptionCNN
from fdgjax.models.hypernetwork import (
    SCHEMES,
    HyperNetwork,
    LayerTemplate,
    LeafTemplate,
    find_layers,
    init_hypernetwork,
    join_layer,
    split_layer,
)
from fdgjax.utils.errors import UserError
from tests.toy_models import DenseNet, NormNet
from tests.toys import flat


class Block(nn.Module):
    """A parameter of its own beside modules of its own."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, ())
        return scale * nn.Dense(3, name="linear", use_bias=False)(x)


class Nested(nn.Module):
    """Modules within modules, shared names, a bare parameter at the root."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = x.reshape(len(x), -1)
        for i in range(2):
            x = nn.relu(Block(name=f"block_{i}")(x))
        return nn.Dense(2, name="linear")(x) + self.param("shift", nn.initializers.zeros, (1, 2))


class Clashing(nn.Module):
    """`a/b_c` and `a_b/c`: different paths whose names joined by an underscore are the same."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        class Outer(nn.Module):
            inner: str

            @nn.compact
            def __call__(self, x: jax.Array) -> jax.Array:
                return nn.Dense(2, name=self.inner)(x)

        return Outer("b_c", name="a")(Outer("c", name="a_b")(x.reshape(len(x), -1)))


class Half(nn.Module):
    """Parameters in bfloat16."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = x.reshape(len(x), -1).astype(jnp.bfloat16)
        return nn.Dense(2, param_dtype=jnp.bfloat16, name="linear")(x)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "inception": (lambda: InceptionCNN(classes=7), (32, 32, 3)),
    "digits_cnn": (lambda: DigitsCNN(classes=10), (8, 8, 1)),
    "dense": (DenseNet, (4, 4, 1)),
    "norm": (NormNet, (4, 4, 1)),
    "nested": (Nested, (2, 2, 1)),
    "clashing": (Clashing, (2, 2, 1)),
    "half": (Half, (2, 2, 1)),
}


def shapes_of(name: str) -> Any:
    make, image = MODULES[name]
    return jax.eval_shape(make().init, jax.random.key(0), jnp.zeros((1, *image)))["params"]


def described(tree: Any) -> dict[str, tuple[tuple[int, ...], Any]]:
    return {path: (leaf.shape, leaf.dtype) for path, leaf in traverse_util.flatten_dict(tree, sep="/").items()}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_generated_tree_is_the_clients(name: str) -> None:
    shapes = shapes_of(name)
    network = HyperNetwork(find_layers(shapes), hidden=3, depth=2)
    generated, _ = jax.eval_shape(network.init_with_output, jax.random.key(0), jnp.zeros(1))
    assert described(generated) == described(shapes)
    chex.assert_trees_all_equal_structs(generated, shapes)


def test_the_paper_s_size() -> None:
    network = HyperNetwork(find_layers(shapes_of("inception")))
    theta = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros(1))["params"]
    heads = {name: leaf for name, leaf in theta.items() if name.startswith("head_")}
    assert len(heads) == 11, "3 convolutions, two modules of 3, 2 linear layers: one head each"
    assert len(theta) - len(heads) == 4
    # Each generated number has 50 weights and a bias; the trunk is 1 -> 50 -> 50 -> 50 -> 50.
    assert sum(leaf.size for leaf in jax.tree.leaves(theta)) == 51 * 928_199 + 100 + 3 * 2_550


NAMES = st.sampled_from(["a", "b", "a_b", "b_c", "c", "kernel"])
LEAVES = st.lists(st.integers(1, 3), max_size=3).map(lambda shape: np.zeros(shape, np.float32))
TREES = st.dictionaries(
    NAMES, st.recursive(LEAVES, lambda x: st.dictionaries(NAMES, x, min_size=1, max_size=2)), min_size=1
)


def numbered(params: Any) -> Any:
    """The same tree with all numbers different."""
    leaves, treedef = jax.tree.flatten(params)
    ends = np.cumsum([leaf.size for leaf in leaves])
    values = [
        np.arange(end - x.size, end, dtype=np.float32).reshape(x.shape) for end, x in zip(ends, leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, values)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=60)
@given(params=TREES)
def test_join_and_split_are_inverse_on_any_tree(params: Any) -> None:
    params = numbered(params)
    layers = find_layers(params)
    assert sum(layer.size for layer in layers) == sum(leaf.size for leaf in jax.tree.leaves(params))
    assert len({layer.path for layer in layers}) == len(layers)
    leaves: dict[tuple[str, ...], Any] = {}
    for layer in layers:
        vector = join_layer(layer, params)
        assert vector.shape == (layer.size,)
        leaves |= split_layer(layer, vector)
    again = traverse_util.unflatten_dict(leaves)
    chex.assert_trees_all_equal_structs(again, params)
    np.testing.assert_array_equal(flat(again), flat(params))


@settings(derandomize=True, deadline=None, max_examples=8)
@given(params=TREES)
def test_heads_for_any_tree(params: Any) -> None:
    network = HyperNetwork(find_layers(params), hidden=2, depth=1)
    generated, _ = jax.eval_shape(network.init_with_output, jax.random.key(0), jnp.zeros(1))
    assert described(generated) == described(params)


def test_layers_are_split_in_the_order_of_their_leaves() -> None:
    bias, kernel = LeafTemplate("bias", (2,), jnp.float32), LeafTemplate("kernel", (2, 2), jnp.float32)
    layer = LayerTemplate(("x",), (bias, kernel))
    leaves = split_layer(layer, jnp.arange(6.0))
    np.testing.assert_array_equal(leaves["x", "bias"], [0, 1])
    np.testing.assert_array_equal(leaves["x", "kernel"], [[2, 3], [4, 5]])


def in_numpy(theta: Any, embedding: np.ndarray, depth: int) -> np.ndarray:
    """All generated numbers in float64: linear layers with LeakyReLU (slope 0.01) between, then one head each."""
    x = embedding
    for i in range(depth):
        x = np.where(x > 0, x, 0.01 * x) if i else x
        x = x @ theta[f"hidden_{i}"]["kernel"] + theta[f"hidden_{i}"]["bias"]
    heads = sorted(name for name in theta if name.startswith("head_"))
    return np.concatenate([x @ theta[head]["kernel"] + theta[head]["bias"] for head in heads])


@settings(derandomize=True, deadline=None, max_examples=10)
@given(seed=st.integers(0, 999))
def test_numbers_and_derivative_against_float64(seed: int) -> None:
    """The forward pass, and `<J u, delta>` by jax against a central difference in float64."""
    rng = np.random.default_rng(seed)
    shapes = shapes_of("dense")
    network = HyperNetwork(find_layers(shapes), hidden=5, depth=3)
    theta = network.init(jax.random.key(seed), jnp.zeros(2))["params"]
    embedding, delta = rng.normal(size=2), rng.normal(size=sum(x.size for x in jax.tree.leaves(shapes)))
    direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), theta)

    def inner(theta: Any) -> jax.Array:
        generated = network.apply({"params": theta}, jnp.asarray(embedding, jnp.float32))
        # Heads in order of name, leaves in order of name: the order of the sorted flat tree.
        vector = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(generated)])
        return vector @ jnp.asarray(delta, jnp.float32)

    exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), theta)
    np.testing.assert_allclose(inner(theta), in_numpy(exact, embedding, 3) @ delta, rtol=1e-4, atol=1e-4)
    step = 1e-6
    ahead, behind = (
        in_numpy(jax.tree.map(lambda w, u, s=s: w + s * np.asarray(u, np.float64), exact, direction), embedding, 3)
        for s in (step, -step)
    )
    _, derivative = jax.jvp(inner, (theta,), (direction,))
    np.testing.assert_allclose(derivative, (ahead - behind) @ delta / (2 * step), rtol=1e-3, atol=1e-3)


def started(scheme: str, seed: int = 0, dim: int = 4) -> tuple[HyperNetwork, Any, Any]:
    client = DenseNet().init(jax.random.key(7), jnp.zeros((1, 4, 4, 1)))["params"]
    network = HyperNetwork(find_layers(client), hidden=20, depth=3)
    return network, client, init_hypernetwork(jax.random.key(seed), network, dim, client, scheme)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_every_scheme_has_the_networks_structure(scheme: str) -> None:
    network, _, theta = started(scheme)
    shapes = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros(4))["params"]
    assert described(theta) == described(shapes)
    assert np.isfinite(flat(theta)).all()


@pytest.mark.slow
def test_torch_draws_kernels_and_biases_within_their_bounds() -> None:
    _, _, theta = started("torch")
    for name, layer in theta.items():
        bound = layer["kernel"].shape[0] ** -0.5
        for leaf in ("kernel", "bias"):
            assert np.abs(layer[leaf]).max() <= bound
        # The largest of k uniform numbers lies below 1 - 20/k of the bound once in e^20 draws.
        numbers = np.abs(flat(layer))
        assert numbers.max() > bound * (1 - 20 / numbers.size), name
        assert abs(flat(layer).mean()) < bound * 6 / np.sqrt(3 * numbers.size), name


@pytest.mark.slow
def test_flax_starts_biases_at_zero() -> None:
    _, _, theta = started("flax")
    for layer in theta.values():
        assert not np.any(layer["bias"])
        assert np.any(layer["kernel"])


def test_model_starts_every_client_near_an_ordinary_model() -> None:
    network, client, theta = started("model")
    ordinary = flat(client)
    for seed in range(3):
        generated = flat(network.apply({"params": theta}, jax.random.normal(jax.random.key(seed), (4,))))
        assert np.linalg.norm(generated - ordinary) < 0.05 * np.linalg.norm(ordinary)
        assert np.any(generated != ordinary), "all clients would be the same"


def test_different_embeddings_give_different_models_and_keys_different_weights() -> None:
    network, _, theta = started("torch")
    first, second = (flat(network.apply({"params": theta}, jnp.full(4, value))) for value in (0.5, -1.0))
    assert not np.allclose(first, second)
    assert not np.allclose(flat(theta), flat(started("torch", seed=1)[2]))


def test_an_unknown_initialisation_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="initialisation 'tourch'") as error:
        started("tourch")
    assert "\n" not in str(error.value)
