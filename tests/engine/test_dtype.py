"""A network computed in bfloat16: all that is multiplied in it is, and on accelerators all between."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Model, Setup
from fdgjax.data.federation import pool
from fdgjax.engine import compile_round, init_state
from fdgjax.experiments import build as experiment_of
from fdgjax.methods import METHODS
from fdgjax.methods.stablefdg import PLACES
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.models.client_model import as_model, make_client_model, make_network
from fdgjax.models.styles import ClientStyle, Mixing, Told
from fdgjax.run.loop import train_rounds
from fdgjax.utils.errors import UserError
from tests.marks import mostly_slow
from tests.runs import perceptron, small
from tests.toy_models import IMAGE, tiny_network
from tests.toys import DOMAINS, lengths_for, make_plan, small_hyper, toy_federation

__all__ = ["perceptron"]
SIDES = {
    "mnist_cnn": (28, 1),
    "dirt_cnn": (28, 1),
    "digits_cnn": (8, 1),
    "alexnet": (224, 3),
    "alexnet_unpadded": (224, 3),
}
QUICK = ("digits_cnn dse", "digits_cnn augmented", "digits_cnn simsiam")
NETWORKS = [
    *MODELS,
    *(f"digits_cnn {unit}" for unit in UNITS),
    *(f"digits_cnn {head}" for head in HEADS if head != "linear"),
]


def products(jaxpr: Any) -> Iterator[Any]:
    """The types of the numbers in every matrix product, convolution and pool of a jaxpr (a pool's places are bytes),
    and what products of float32 numbers round their operands to."""
    for equation in jaxpr.eqns:
        if "dot_general" in equation.primitive.name or "fdgjax" in equation.primitive.name:
            pool = "windows" in equation.params
            how = "pool" if pool else equation.params.get("precision") or equation.params.get("plan")
            dtypes = [value.aval.dtype for value in equation.invars]
            yield from ((str(dtype), how) for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating))
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda value: hasattr(value, "eqns")):
            if hasattr(inner, "eqns"):
                yield from products(getattr(inner, "jaxpr", inner))


EXPECTED: dict[str, set[Any]] = {
    "gpu": {("bfloat16", None), ("bfloat16", "pool")},
    "cpu": {("float32", jax.lax.DotAlgorithmPreset.BF16_BF16_F32), ("float32", "bfloat16"), ("float32", "pool")},
}
"""By platform, what `products` finds at most."""


@pytest.mark.slow
@pytest.mark.parametrize("platform", EXPECTED)
@pytest.mark.parametrize("name", mostly_slow(NETWORKS, QUICK))
def test_every_product_of_a_network_is_in_bfloat16_and_all_it_returns_in_float32(
    name: str, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    network, _, part = name.partition(" ")
    side, channels = SIDES.get(network, (32, 3))
    shape = MODELS[network].sample or (side, side, channels)
    unit, head = (part if part in kind else "" for kind in (UNITS, HEADS))
    model = as_model(make_network(network, 4, width=0.25, unit=unit, head=head), shape, dtype="bfloat16")

    def step(variables: Any, images: jax.Array, key: jax.Array) -> Any:
        def loss(params: Any) -> Any:
            output, changed = model.apply({**variables, "params": params}, images, True, key)
            return jnp.sum(output.logits), (output, changed)

        return jax.grad(loss, has_aux=True)(variables["params"])

    key = jax.eval_shape(lambda: jax.random.key(0))
    variables = jax.eval_shape(model.init, key)
    # Flax's own normalisation mixes types, as JAX allows by default.
    with jax.numpy_dtype_promotion("standard"):
        traced = jax.make_jaxpr(step)(variables, jax.ShapeDtypeStruct((2, *shape), np.float32), key)
    assert {str(leaf.dtype) for leaf in (*jax.tree.leaves(variables), *traced.out_avals)} == {"float32"}
    assert set(products(traced.jaxpr))
    assert set(products(traced.jaxpr)) <= EXPECTED[platform]


@pytest.mark.parametrize("platform", EXPECTED)
def test_shared_and_explored_styles_leave_the_products_in_bfloat16(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    model = as_model(make_network("digits_cnn", 4, width=0.25, head="highlighted"), (8, 8, 1), dtype="bfloat16")

    def logits(variables: Any, images: jax.Array, key: jax.Array) -> jax.Array:
        rows = jnp.arange(2 * len(images))
        told = Told(
            origin=rows % len(images),
            partner=rows,
            counted=jnp.ones(len(rows)),
            share=jnp.array(True),
            bits=jax.random.key_data(key),
            other=ClientStyle(*[jnp.zeros(4)] * 4),
            explore=jnp.ones(PLACES, bool),
            mixing=Mixing(jnp.stack([rows] * PLACES), jnp.ones((PLACES, len(rows)))),
            level=jnp.float32(3),
        )
        return model.apply({**variables, "styles": {"told": told._asdict()}}, images, True, key)[0].logits

    key = jax.eval_shape(lambda: jax.random.key(0))
    variables = jax.eval_shape(model.init, key)
    with jax.numpy_dtype_promotion("standard"):
        traced = jax.make_jaxpr(logits)(variables, jax.ShapeDtypeStruct((2, 8, 8, 1), np.float32), key)
    assert set(products(traced.jaxpr))
    assert set(products(traced.jaxpr)) <= EXPECTED[platform]


def toy(method: str, dtype: str) -> Model:
    network, image = tiny_network("dense", method)
    return as_model(network, image, dtype=dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(sorted(METHODS), ("fdse", "hfedf")))
def test_a_round_leaves_the_types_that_it_leaves_in_float32(name: str) -> None:
    federation, ends = toy_federation(lengths_for(name)), []
    for dtype in ("float32", "bfloat16"):
        method = METHODS[name].build(
            Setup(toy(name, dtype), len(federation.ids), 3, domains=DOMAINS), small_hyper(name)
        )
        data = pool(federation) if method.pooled else federation
        state = jax.eval_shape(functools.partial(init_state, method), data, 0)
        after = jax.eval_shape(compile_round(method, make_plan()), state, data)
        ends.append(jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), after))
    assert ends[0] == ends[1]


def test_float32_is_what_it_was() -> None:
    model = toy("fedavg", "float32")
    variables = jax.eval_shape(model.init, jax.eval_shape(lambda: jax.random.key(0)))
    applied = jax.make_jaxpr(lambda v, x: model.apply(v, x, False, jax.random.key(0)))
    assert "convert_element_type" not in str(applied(variables, np.zeros((2, *IMAGE), np.float32)))


@pytest.mark.slow
def test_a_run_in_bfloat16_is_near_the_one_in_float32(perceptron: None, cache: Path) -> None:
    losses = []
    for dtype in ("float32", "bfloat16"):
        experiment = experiment_of(small(cache, rounds=2, dtype=dtype))
        *_, last = train_rounds(experiment, experiment.init())
        assert last.state is not None
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(last.state.server)} == {"float32"}
        losses.append([last.records[0][name] for name in ("train_loss", "ood_loss", "id_accuracy")])
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.03)


class Fixed(nn.Module):
    """Has float32 numbers of its own, and converts nothing."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        return jax.lax.add(x.reshape(len(x), -1), np.ones((len(x), 4), np.float32))


def test_a_network_that_cannot_is_refused_in_one_line() -> None:
    def made(dtype: str) -> Any:
        network: Any = functools.partial(Fixed)
        return make_client_model(network, "mnist_cnn", (2, 2, 1), frozen=0, scaling="signed", weights=None, dtype=dtype)

    made("float32")
    with pytest.raises(UserError, match=r"config\.dtype got 'bfloat16', in which the network 'mnist_cnn' can") as error:
        made("bfloat16")
    assert "\n" not in str(error.value)
