"""Our networks against PyTorch's own layers: the same outputs, gradients and statistics from the same variables."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import traverse_util

from fdgjax.models import AlexNet, DSEUnit, InceptionCNN, ResNet
from fdgjax.models.client_model import as_model

torch = pytest.importorskip("torch", reason="PyTorch is optional, and only benchmarks use it")
from benchmarks import torch_models, torch_round  # noqa: E402
from benchmarks.jobs import Job  # noqa: E402

CLASSES = 5


class Pair(NamedTuple):
    """Ours and its twin, narrow, and the side of their images."""

    ours: nn.Module
    twin: Callable[..., Any]
    side: int


PAIRS: Mapping[str, Pair] = {
    "inception": Pair(InceptionCNN(CLASSES, dropout=0.0), partial(torch_models.InceptionCNN, dropout=0.0), 8),
    "alexnet": Pair(AlexNet(CLASSES, 1 / 8), partial(torch_models.AlexNet, width=1 / 8), 67),
    "dse_alexnet": Pair(AlexNet(CLASSES, 1 / 8, unit=DSEUnit), partial(torch_models.DSEAlexNet, width=1 / 8), 67),
    "resnet18": Pair(ResNet(CLASSES, width=1 / 8), partial(torch_models.ResNet18, width=8), 12),
}

KINDS = {"kernel": "weight", "scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}


def torch_state(variables: Any) -> dict[str, np.ndarray]:
    """Our variables by PyTorch's names and in its layout; gradients and statistics likewise."""
    leaves = [item for tree in variables.values() for item in traverse_util.flatten_dict(tree).items()]
    order = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
    return {
        ".".join((*path[:-1], KINDS[path[-1]])): np.asarray(leaf).transpose(order[leaf.ndim]) for path, leaf in leaves
    }


class Results(NamedTuple):
    """What a network makes of a batch: logits in evaluation and training, gradients, means kept after training."""

    evaluated: np.ndarray
    trained: np.ndarray
    gradients: dict[str, np.ndarray]
    means: dict[str, np.ndarray]


def drawn(shapes: Any) -> Any:
    """Variables none of which is special: kernels large enough to be seen, variances and scales around 1."""
    rng = np.random.default_rng(0)

    def draw(path: Any, leaf: Any) -> jax.Array:
        kind, fan_in = path[-1].key, np.prod(leaf.shape[:-1])
        spread = fan_in**-0.5 if kind == "kernel" else 0.2
        return jnp.asarray(rng.uniform(-spread, spread, leaf.shape) + (kind in ("scale", "var")))

    return jax.tree_util.tree_map_with_path(draw, shapes)


def ours(model: Any, variables: Any, images: jax.Array, labels: jax.Array) -> Results:
    key = jax.random.key(0)

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def compute(variables: Any, images: jax.Array, labels: jax.Array) -> tuple:
        def loss(params: Any) -> tuple[jax.Array, tuple]:
            output, changed = model.apply({**variables, "params": params}, images, True, key)
            logits = output.logits
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), (logits, changed)

        gradients, (logits, changed) = jax.grad(loss, has_aux=True)(variables["params"])
        return model.apply(variables, images, False, key)[0], logits, gradients, changed

    evaluated, trained, gradients, changed = jax.device_get(compute(variables, images, labels))
    means = {name: value for name, value in torch_state(changed).items() if name.endswith("running_mean")}
    return Results(evaluated, trained, torch_state({"params": gradients}), means)


def theirs(network: Any, variables: Any, images: jax.Array, labels: jax.Array) -> Results:
    counts = {name: value for name, value in network.state_dict().items() if name.endswith("num_batches_tracked")}
    state = {name: torch.tensor(value.copy()) for name, value in torch_state(variables).items()}
    network.load_state_dict(state | counts)
    x, y = torch.tensor(np.asarray(images)).permute(0, 3, 1, 2), torch.tensor(np.asarray(labels), dtype=torch.long)
    with torch.no_grad():
        evaluated = network.eval()(x).numpy()
    logits = network.train()(x)
    torch.nn.functional.cross_entropy(logits, y).backward()
    gradients = {name: value.grad.numpy() for name, value in network.named_parameters()}
    means = {name: value.numpy() for name, value in network.named_buffers() if name.endswith("running_mean")}
    return Results(evaluated, logits.detach().numpy(), gradients, means)


@pytest.mark.parametrize("name", PAIRS)
def test_the_torch_twin_is_the_same_network(name: str) -> None:
    # In float64: BatchNorm of eight numbers, ReLU and max-pools turn rounding into large differences of gradients.
    # Flax asks for the wider of float64 and float32, which strict promotion refuses to name.
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        compare(name)


def compare(name: str) -> None:
    pair, rng = PAIRS[name], np.random.default_rng(1)
    model = as_model(pair.ours, (pair.side, pair.side, 3))
    variables = drawn(jax.eval_shape(model.init, jax.random.key(0)))
    images = jnp.asarray(rng.normal(size=(8, pair.side, pair.side, 3)))
    labels = jnp.asarray(rng.integers(0, CLASSES, 8), jnp.int32)
    mine = ours(model, variables, images, labels)
    network = pair.twin(classes=CLASSES, image_size=pair.side).double()
    other = theirs(network, variables, images, labels)
    assert bool(mine.means) == (name != "inception")
    chex.assert_trees_all_close(mine, other, rtol=1e-8, atol=1e-10)


def test_a_torch_round_of_a_network_with_batchnorm() -> None:
    """Its statistics are averaged; the count of batches, an integer, is left alone."""
    job = Job("torch", clients=2, batch_size=2, steps=1, rounds=1, image_size=8)
    device = torch.device("cpu")
    network = torch_models.ResNet18(7, 8, width=4)
    before = torch_round.copy(network)
    after, loss = torch_round.one_round(network, before, torch_round.random_data(job, device), job, device)
    assert torch.isfinite(loss)
    for name, value in after.items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name]) == name.endswith("num_batches_tracked"), name
