"""Makes torch_numbers.npz, beside this file: what PyTorch's layers make of the inputs of the tests, in float64.

Made with PyTorch 2.13.0 (`digits_cnn` and `dirt_cnn` with 2.15.0) for CPUs, NumPy 2 and Python 3.11, by

    pip install -c constraints.txt -e '.[test]' && pip install torch==2.13.0
    python -m tests.conformance.make_torch_numbers

Where PyTorch is installed, tests/benchmarks/test_torch_twins.py checks that it would be made again.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks import torch_models, torch_published
from fdgjax.utils.variables import flatten
from tests.conformance import FILE
from tests.conformance.networks import (
    BATCH,
    CLASSES,
    NETWORKS,
    PARTIAL,
    batch_norm_given,
    float64,
    given,
    kept,
    mnist_given,
    torch_state,
)
from tests.conformance.weights import images, weights_for

TWINS: Mapping[str, Callable[..., torch.nn.Module]] = {
    "inception": partial(torch_models.InceptionCNN, dropout=0.0),
    "digits_cnn": torch_models.DigitsCNN,
    "alexnet": partial(torch_models.AlexNet, width=1 / 8),
    "dse_alexnet": partial(torch_models.DSEAlexNet, width=1 / 8),
    "resnet18": partial(torch_models.ResNet18, width=8),
    "mnist_cnn": partial(torch_published.MnistCNN, width=1 / 8),
    "dirt_cnn": partial(torch_published.DirtCNN, width=1 / 8),
    "densenet": partial(torch_published.DenseNet, growth=4, depths=(1, 2, 1)),
    "efficientnet_lite0": partial(torch_published.EfficientNetLite, width=1 / 8),
}


def twin(name: str) -> dict[str, np.ndarray]:
    """What is kept of a network of the benchmarks that is given our variables."""
    with float64():
        _, variables, images, labels = given(name)
        state = {path: torch.tensor(value.copy()) for path, value in torch_state(variables).items()}
    network = TWINS[name](classes=CLASSES, image_size=NETWORKS[name].side).double()
    counts = {path: value for path, value in network.state_dict().items() if path.endswith("num_batches_tracked")}
    network.load_state_dict(state | counts)
    x, y = torch.tensor(images).permute(0, 3, 1, 2), torch.tensor(labels, dtype=torch.long)
    with torch.no_grad():
        evaluated = network.eval()(x).numpy()
    logits = network.train()(x)
    functional.cross_entropy(logits, y).backward()
    gradients = {path: value.grad.numpy() for path, value in network.named_parameters()}
    means = {path: value.numpy() for path, value in network.named_buffers() if path.endswith("running_mean")}
    return kept(evaluated, logits.detach().numpy(), gradients, means)


def resnet18(t: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """torchvision's forward in evaluation, from its names."""

    def unit(x: torch.Tensor, conv: str, bn: str, stride: int) -> torch.Tensor:
        weight = t[f"{conv}.weight"]
        y = torch.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        statistics = (t[f"{bn}.{leaf}"] for leaf in ("running_mean", "running_var", "weight", "bias"))
        return functional.batch_norm(y, *statistics)

    x = torch.max_pool2d(unit(x, "conv1", "bn1", 2).relu(), 3, 2, 1)
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = unit(x, f"{name}.conv1", f"{name}.bn1", stride).relu()
            y = unit(y, f"{name}.conv2", f"{name}.bn2", 1)
            down = f"{name}.downsample"
            x = (y + (unit(x, f"{down}.0", f"{down}.1", stride) if f"{down}.0.weight" in t else x)).relu()
    return x.mean((2, 3)) @ t["fc.weight"].T + t["fc.bias"]


def vit(t: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """timm's forward, from its names."""

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.layer_norm(x, x.shape[-1:], t[f"{name}.weight"], t[f"{name}.bias"], 1e-6)

    x = torch.conv2d(x, t["patch_embed.proj.weight"], t["patch_embed.proj.bias"], stride=8).flatten(2).transpose(1, 2)
    x = torch.cat([t["cls_token"].expand(len(x), -1, -1), x], 1) + t["pos_embed"]
    for i in range(12):
        name = f"blocks.{i}"
        qkv = linear(norm(x, f"{name}.norm1"), f"{name}.attn.qkv").reshape(len(x), -1, 3, 2, 64).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*qkv).transpose(1, 2).flatten(2)
        x = x + linear(attended, f"{name}.attn.proj")
        x = x + linear(functional.gelu(linear(norm(x, f"{name}.norm2"), f"{name}.mlp.fc1")), f"{name}.mlp.fc2")
    return linear(norm(x, "norm")[:, 0], "head")


def pretrained(name: str, forward: Callable[..., torch.Tensor]) -> dict[str, np.ndarray]:
    """The logits of a network that is given a file's tensors."""
    tensors = {path: torch.from_numpy(value).double() for path, value in weights_for(name).items()}
    x = torch.from_numpy(images()).double().permute(0, 3, 1, 2)
    return {"logits": forward(tensors, x).numpy()}


def mnist() -> dict[str, np.ndarray]:
    """The logits of DomainBed's network, from PyTorch's layers."""
    variables, x = mnist_given()
    t = {path: torch.from_numpy(np.array(leaf)).double() for path, leaf in flatten(variables["params"]).items()}
    y = torch.from_numpy(x).double().permute(0, 3, 1, 2)
    for i, stride in enumerate((1, 2, 1, 1), start=1):
        kernel = t[f"conv_{i}/layer/kernel"].permute(3, 2, 0, 1)
        y = torch.conv2d(y, kernel, t[f"conv_{i}/layer/bias"], stride=stride, padding=1).relu()
        y = functional.group_norm(y, 8, t[f"conv_{i}/gn/scale"], t[f"conv_{i}/gn/bias"])
    return {"logits": (y.mean((2, 3)) @ t["head/kernel"] + t["head/bias"]).numpy()}


def batch_norm(samples: int) -> dict[str, np.ndarray]:
    """PyTorch's BatchNorm in training on the first samples: its result, what it keeps, and the gradients of
    `sum sin(3 y)`."""
    given, x = batch_norm_given()
    layer = torch.nn.BatchNorm2d(len(given["scale"])).double()
    names = {"scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}
    layer.load_state_dict({names[name]: torch.from_numpy(value) for name, value in given.items()}, strict=False)
    images = torch.from_numpy(x[:samples]).permute(0, 3, 1, 2).requires_grad_()
    y = layer(images)
    torch.sin(3 * y).sum().backward()
    kept = {name: layer.state_dict()[names[name]].numpy() for name in ("mean", "var")}
    gradients = {"scale": layer.weight.grad.numpy(), "bias": layer.bias.grad.numpy()}
    of_images = {"y": y.detach(), "x": images.grad}
    return kept | gradients | {name: value.permute(0, 2, 3, 1).numpy() for name, value in of_images.items()}


def numbers() -> dict[str, dict[str, np.ndarray]]:
    """Everything that is stored, by what it is of."""
    made: dict[str, dict[str, np.ndarray]] = {name: twin(name) for name in NETWORKS}
    made |= {name: pretrained(name, forward) for name, forward in (("resnet18_imagenet", resnet18), ("vit_b8", vit))}
    made |= {f"batch_norm_{samples}": batch_norm(samples) for samples in (BATCH, PARTIAL)}
    return made | {"mnist": mnist()}


if __name__ == "__main__":
    made = numbers()
    arrays: dict[str, Any] = {f"{name}/{path}": x for name, group in made.items() for path, x in group.items()}
    np.savez_compressed(FILE, **arrays)
