"""Files of weights by torchvision's and timm's names, written down from their layers, with random numbers."""

from collections.abc import Callable, Mapping

import numpy as np

Tensors = dict[str, np.ndarray]
CLASSES = 3
SIDE = 16
SIDES = {"vgg11": 64, "densenet121": 32, "deit_b": 32}
"""Of images, where it is not `SIDE`; of 64 pixels VGG leaves 2, so that their order in the linear layer counts."""


def numbers(shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
    rng = np.random.default_rng(0)
    made = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
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


def vit(patch: int = 8, features: int = 128, depth: int = 12) -> Tensors:
    """timm's names and shapes, for images of 2 x 2 patches."""
    shapes: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, features), "pos_embed": (1, 5, features)}
    linear = {"patch_embed.proj": (features, 3, patch, patch), "norm": (features,), "head": (CLASSES, features)}
    for i in range(depth):
        linear |= {f"blocks.{i}.{name}": (features,) for name in ("norm1", "norm2")}
        linear |= {f"blocks.{i}.attn.qkv": (3 * features, features), f"blocks.{i}.attn.proj": (features, features)}
        linear |= {f"blocks.{i}.mlp.fc1": (4 * features, features), f"blocks.{i}.mlp.fc2": (features, 4 * features)}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return numbers(shapes)


def vgg() -> Tensors:
    """torchvision's names and shapes of VGG-11; a thirty-second of the channels."""
    convolutions = {0: (2, 3), 3: (4, 2), 6: (8, 4), 8: (8, 8), 11: (16, 8), 13: (16, 16), 16: (16, 16), 18: (16, 16)}
    shapes: dict[str, tuple[int, ...]] = {
        f"features.{place}": (*both, 3, 3) for place, both in convolutions.items()
    } | {"classifier.0": (128, 16 * 7 * 7), "classifier.3": (128, 128), "classifier.6": (CLASSES, 128)}
    named = {f"{name}.{leaf}": shape for name, shape in shapes.items() for leaf in ("weight", "bias")}
    return numbers({name: shape[:1] if name.endswith("bias") else shape for name, shape in named.items()})


def densenet(depths: tuple[int, ...] = (6, 12, 24, 16), growth: int = 2) -> Tensors:
    """torchvision's names and shapes, written down from its layers; 121 layers, a sixteenth of the channels."""
    now = 2 * growth
    shapes: dict[str, tuple[int, ...]] = {"features.conv0.weight": (now, 3, 7, 7)} | batch_norm("features.norm0", now)
    for stage, depth in enumerate(depths, start=1):
        for layer in range(1, depth + 1):
            name = f"features.denseblock{stage}.denselayer{layer}"
            shapes |= batch_norm(f"{name}.norm1", now) | {f"{name}.conv1.weight": (4 * growth, now, 1, 1)}
            shapes |= batch_norm(f"{name}.norm2", 4 * growth)
            shapes |= {f"{name}.conv2.weight": (growth, 4 * growth, 3, 3)}
            now += growth
        if stage < len(depths):
            name = f"features.transition{stage}"
            shapes |= batch_norm(f"{name}.norm", now) | {f"{name}.conv.weight": (now // 2, now, 1, 1)}
            now //= 2
    shapes |= batch_norm("features.norm5", now)
    return numbers(shapes | {"classifier.weight": (CLASSES, now), "classifier.bias": (CLASSES,)})


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
    "vgg11": vgg,
    "densenet121": densenet,
    "deit_b": lambda: vit(patch=16),
}


LOUD: Mapping[str, float] = {"resnet50_imagenet": 2.7, "densenet121": 3.0}
"""Factors on convolutions' kernels, without which BatchNorm's biases drown the image."""


def weights_for(name: str) -> Tensors:
    """The file whose logits are compared with PyTorch's: products of matrices do not grow with the layers."""
    factors = {2: 0.25, 4: LOUD.get(name, 1.0)}
    return {key: value * np.float32(factors.get(value.ndim, 1.0)) for key, value in FILES[name]().items()}


def images(name: str = "") -> np.ndarray:
    """Two images for a network, channels last."""
    side = SIDES.get(name, SIDE)
    return np.random.default_rng(1).uniform(-1, 1, (2, side, side, 3)).astype(np.float32)
