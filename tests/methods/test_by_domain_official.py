"""VREx and Fish against DomainBed's own classes (facebookresearch/DomainBed, b93c22a), run in float64 on a linear
classifier: four steps each with Adam, a penalty that begins in the third, three domains of six samples."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fdgjax.contract import Batch, Context, Model, Output, Setup
from fdgjax.methods.fish import Fish, fish
from fdgjax.methods.parts.extend import Extended
from fdgjax.methods.vrex import VREx, vrex

ADAM: dict[str, Any] = {"client_optimizer": "adam", "client_learning_rate": 0.05, "client_weight_decay": 0.01}


@pytest.fixture(scope="module")
def numbers() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parents[1] / "conformance" / "domainbed.npz") as found:
        return {name: values.astype(np.int32 if name == "y" else np.float32) for name, values in found.items()}


def linear(numbers: dict[str, np.ndarray]) -> Model:
    def apply(variables: Any, images: jax.Array, train: bool, key: jax.Array) -> tuple[Output, Any]:
        return Output(images @ variables["params"]["kernel"] + variables["params"]["bias"][None], images), {}

    first = {"params": {name: jnp.asarray(numbers[name]) for name in ("kernel", "bias")}}
    return Model(lambda key: first, apply)


def trained(method: Any, model: Model, batches: list[tuple[int, Batch]]) -> list[Any]:
    """The parameters after each batch, given with its round."""
    key = jax.random.key(0)
    params = model.init(key)["params"]
    state = method.optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, batch: Batch, round_: jax.Array) -> Any:
        context = Context((), Extended((), jnp.int32(3)), {}, round_)
        gradient = jax.grad(lambda w: method.objective({"params": w}, batch, key, context)[0])(params)
        updates, state = method.optimizer.update(gradient, state, params, round=round_, done=0.0, context=context)
        return optax.apply_updates(params, updates), state

    after = []
    for round_, batch in batches:
        params, state = step(params, state, batch, jnp.int32(round_))
        after.append(params)
    return after


@pytest.mark.slow
def test_vrex_steps_as_domainbed(numbers: dict[str, np.ndarray]) -> None:
    steps, domains, size, _ = numbers["x"].shape
    model = linear(numbers)
    method = vrex(Setup(model, 1, steps, domains=domains), VREx(**ADAM, penalty=7.0, anneal=0.5))
    kinds = jnp.repeat(jnp.arange(domains), size)
    batches = [
        Batch(x.reshape(len(kinds), -1), y.ravel(), jnp.ones(len(kinds)), domains=kinds)
        for x, y in zip(numbers["x"], numbers["y"], strict=True)
    ]
    for step, params in enumerate(trained(method, model, list(enumerate(batches)))):
        np.testing.assert_allclose(params["kernel"], numbers["vrex_kernel"][step], atol=1e-5)
        np.testing.assert_allclose(params["bias"], numbers["vrex_bias"][step], atol=1e-5)


@pytest.mark.slow
def test_fish_steps_as_domainbed(numbers: dict[str, np.ndarray]) -> None:
    steps, domains, size, _ = numbers["x"].shape
    model = linear(numbers)
    method = fish(Setup(model, 1, steps, domains=domains), Fish(**ADAM, rate=0.3))
    pairs = [
        (0, Batch(x, y, jnp.ones(size), domains=jnp.full(size, domain)))
        for xs, ys in zip(numbers["x"], numbers["y"], strict=True)
        for domain, (x, y) in enumerate(zip(xs, ys, strict=True))
    ]
    for step, params in enumerate(trained(method, model, pairs)[domains - 1 :: domains]):
        np.testing.assert_allclose(params["kernel"], numbers["fish_kernel"][step], atol=1e-5)
        np.testing.assert_allclose(params["bias"], numbers["fish_bias"][step], atol=1e-5)
