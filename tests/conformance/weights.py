"""Files of weights by torchvision's and timm's names, written down from their layers, with random numbers."""

from collections.abc import Callable, Mapping

import numpy as np

Tensors = dict[str, np.ndarray]
CLASSES = 3
SIDE = 16


def numbers(shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
    rng = np.random.default_rng(0)
    draw = lambda shape: rng.normal(0, 0.3, shape).astype(np.float32)  # noqa: E731
    made = {name: draw(shape) for name, shape in shapes.items()}
    return {name: np.abs(value) + 0.5 if name.endswith("running_var") else value for name, value in made.items()}


def batch_norm(name: str, features: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.{leaf}": (features,) for leaf in ("weight", "bias", "running_mean", "running_var")}


def resnet(depths: tuple[int, ...], windows: tuple[int, ...], expansion: int, channels: int = 3) -> Tensors:
    """torchvision's names and shapes, written down from its layers; a first stage of 4 channels."""
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (4, channels, 7, 7)} | batch_norm("bn1", 4)
    before = 4
    for stage, depth in enumerate(depths):
        inner, outer = 4 * 2**stage, 4 * 2**stage * expansion
        for block in range(depth):
            name, entering = f"layer{stage + 1}.{block}", before
            for i, window in enumerate(windows, start=1):
                leaving = outer if i == len(windows) else inner
                shapes[f"{name}.conv{i}.weight"] = (leaving, entering, window, window)
                shapes |= batch_norm(f"{name}.bn{i}", leaving)
                entering = leaving
            if before != outer:
                shapes[f"{name}.downsample.0.weight"] = (outer, before, 1, 1)
                shapes |= batch_norm(f"{name}.downsample.1", outer)
            before = outer
    return numbers(shapes | {"fc.weight": (CLASSES, before), "fc.bias": (CLASSES,)})


def vit(features: int = 128, depth: int = 12) -> Tensors:
    """timm's names and shapes, for images of 2 x 2 patches."""
    shapes: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, features), "pos_embed": (1, 5, features)}
    linear = {"patch_embed.proj": (features, 3, 8, 8), "norm": (features,), "head": (CLASSES, features)}
    for i in range(depth):
        linear |= {f"blocks.{i}.{name}": (features,) for name in ("norm1", "norm2")}
        linear |= {f"blocks.{i}.attn.qkv": (3 * features, features), f"blocks.{i}.attn.proj": (features, features)}
        linear |= {f"blocks.{i}.mlp.fc1": (4 * features, features), f"blocks.{i}.mlp.fc2": (features, 4 * features)}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return numbers(shapes)


def efficientnet() -> Tensors:
    """Its package's names and shapes, written down from its layers; an eighth of the channels."""
    stages = ((1, 2, 3, 1), (2, 3, 3, 6), (2, 5, 5, 6), (3, 10, 3, 6), (3, 14, 5, 6), (4, 24, 5, 6), (1, 40, 3, 6))
    shapes: dict[str, tuple[int, ...]] = {"_conv_stem.weight": (4, 3, 3, 3)} | batch_norm("_bn0", 4)
    before, block = 4, 0
    for repeats, leaving, window, expansion in stages:
        for _ in range(repeats):
            name, inner = f"_blocks.{block}", expansion * before
            if expansion > 1:
                shapes |= {f"{name}._expand_conv.weight": (inner, before, 1, 1)} | batch_norm(f"{name}._bn0", inner)
            shapes |= {f"{name}._depthwise_conv.weight": (inner, 1, window, window)} | batch_norm(f"{name}._bn1", inner)
            shapes |= {f"{name}._project_conv.weight": (leaving, inner, 1, 1)} | batch_norm(f"{name}._bn2", leaving)
            before, block = leaving, block + 1
    shapes |= {"_conv_head.weight": (160, before, 1, 1)} | batch_norm("_bn1", 160)
    return numbers(shapes | {"_fc.weight": (CLASSES, 160), "_fc.bias": (CLASSES,)})


FILES: Mapping[str, Callable[[], Tensors]] = {
    "resnet18_imagenet": lambda: resnet((2, 2, 2, 2), (3, 3), 1),
    "resnet50_imagenet": lambda: resnet((3, 4, 6, 3), (1, 3, 1), 4),
    "efficientnet_lite0": efficientnet,
    "vit_b8": vit,
}


def weights_for(name: str) -> Tensors:
    """The file whose logits are compared with PyTorch's: products of matrices do not grow with the layers."""
    return {key: value / 4 if value.ndim == 2 else value for key, value in FILES[name]().items()}


def images() -> np.ndarray:
    """Two images, channels last."""
    return np.random.default_rng(1).uniform(-1, 1, (2, SIDE, SIDE, 3)).astype(np.float32)
