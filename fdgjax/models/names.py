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


class Layout(NamedTuple):
    """How a tensor of the file becomes a variable.

    shape: the tensor's shape, from the variable's.
    convert: `(tensor, variable's shape) -> variable`.
    """

    shape: Callable[[Shape], Shape]
    convert: Callable[[np.ndarray, Shape], np.ndarray]


same = Layout(lambda shape: shape, lambda tensor, shape: tensor)

conv = Layout(
    lambda shape: (shape[3], shape[2], shape[0], shape[1]) if len(shape) == 4 else shape,
    lambda tensor, shape: tensor.transpose(2, 3, 1, 0) if len(shape) == 4 else tensor,
)
"""`[out, in, h, w]` -> `[h, w, in, out]`; a bias stays."""

linear = Layout(
    lambda shape: (shape[-1], math.prod(shape[:-1])) if len(shape) > 1 else shape,
    lambda tensor, shape: tensor.T.reshape(shape),
)
"""`[out, in]` -> `[in, out]`, or `[heads, size, out]` after an attention; vectors stay."""


def flattened(pixels: int) -> Layout:
    """A linear layer after the flattened pixels of an image: `[out, channels pixels]` -> `[pixels channels, out]`."""
    return Layout(
        linear.shape,
        lambda tensor, shape: (
            tensor.reshape(len(tensor), -1, pixels).transpose(2, 1, 0).reshape(shape) if len(shape) > 1 else tensor
        ),
    )


def third(which: int) -> Layout:
    """Queries (0), keys (1) or values (2) of one tensor `[3 heads size, in]` -> `[in, heads, size]`, and its bias."""
    return Layout(
        lambda shape: (3 * shape[-2] * shape[-1], *shape[:-2]),
        lambda tensor, shape: np.split(tensor, 3)[which].T.reshape(shape),
    )


class Row(NamedTuple):
    """A kind of module: a pattern of its path here, its name there, and its tensors' layout.

    In the name, `{leaf}` is the tensor's own, `{index}` the block counted from 0, other words are the pattern's groups.
    """

    ours: str
    theirs: str
    layout: Layout = linear


class Names(NamedTuple):
    """A network's names: the kind of its own units (entry of `UNITS`), for which the names hold, the scaling of the
    images that published weights expect (entry of `SCALINGS`), and all rows."""

    unit: str
    scaling: str
    rows: tuple[Row, ...]


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
    (
        Row("stem/layer", "conv1.{leaf}", conv),
        Row("stem/bn", "bn1.{leaf}"),
        Row(rf"{STAGE}/unit_(?P<unit>\d+)/layer", "layer{stage}.{index}.conv{unit}.{leaf}", conv),
        Row(rf"{STAGE}/unit_(?P<unit>\d+)/bn", "layer{stage}.{index}.bn{unit}.{leaf}"),
        Row(rf"{STAGE}/shortcut/layer", "layer{stage}.{index}.downsample.0.{leaf}", conv),
        Row(rf"{STAGE}/shortcut/bn", "layer{stage}.{index}.downsample.1.{leaf}"),
        Row("head", "fc.{leaf}"),
    ),
)

BLOCK = r"block_(?P<block>\d+)"
VIT = Names(
    "plain",
    "signed",
    (
        Row("", "{leaf}", same),
        Row("patches", "patch_embed.proj.{leaf}", conv),
        Row(rf"{BLOCK}/norm_(?P<half>\d)", "blocks.{index}.norm{half}.{leaf}"),
        Row(f"{BLOCK}/attention/query", "blocks.{index}.attn.qkv.{leaf}", third(0)),
        Row(f"{BLOCK}/attention/key", "blocks.{index}.attn.qkv.{leaf}", third(1)),
        Row(f"{BLOCK}/attention/value", "blocks.{index}.attn.qkv.{leaf}", third(2)),
        Row(f"{BLOCK}/attention/out", "blocks.{index}.attn.proj.{leaf}"),
        Row(rf"{BLOCK}/mlp_(?P<half>\d)", "blocks.{index}.mlp.fc{half}.{leaf}"),
        Row("norm", "norm.{leaf}"),
        Row("head", "head.{leaf}"),
    ),
)

DEIT = VIT._replace(scaling="imagenet")

PLACES = (0, 3, 6, 8, 11, 13, 16, 18)
"""Of VGG-11's convolutions among ReLUs and pools."""

VGG = Names(
    "plain",
    "imagenet",
    (
        *(Row(f"conv_{i}", f"features.{place}.{{leaf}}", conv) for i, place in enumerate(PLACES, start=1)),
        Row("hidden_1", "classifier.0.{leaf}", flattened(vgg.BINS**2)),
        Row("hidden_2", "classifier.3.{leaf}"),
        Row("head", "classifier.6.{leaf}"),
    ),
)

DENSENET = Names(
    "plain",
    "imagenet",
    (
        Row("stem/layer", "features.conv0.{leaf}", conv),
        Row("stem/bn", "features.norm0.{leaf}"),
        Row(f"{STAGE}/bn", "features.denseblock{stage}.denselayer{block}.norm1.{leaf}"),
        Row(f"{STAGE}/unit_1/layer", "features.denseblock{stage}.denselayer{block}.conv1.{leaf}", conv),
        Row(f"{STAGE}/unit_1/bn", "features.denseblock{stage}.denselayer{block}.norm2.{leaf}"),
        Row(f"{STAGE}/unit_2", "features.denseblock{stage}.denselayer{block}.conv2.{leaf}", conv),
        Row(r"transition_(?P<stage>\d+)/bn", "features.transition{stage}.norm.{leaf}"),
        Row(r"transition_(?P<stage>\d+)/conv", "features.transition{stage}.conv.{leaf}", conv),
        Row("bn", "features.norm5.{leaf}"),
        Row("head", "classifier.{leaf}"),
    ),
)

EFFICIENTNET = Names(
    "",
    "efficientnet_lite",
    (
        Row("stem/layer", "_conv_stem.{leaf}", conv),
        Row("stem/bn", "_bn0.{leaf}"),
        Row(f"{BLOCK}/expand/layer", "_blocks.{index}._expand_conv.{leaf}", conv),
        Row(f"{BLOCK}/expand/bn", "_blocks.{index}._bn0.{leaf}"),
        Row(f"{BLOCK}/depthwise/layer", "_blocks.{index}._depthwise_conv.{leaf}", conv),
        Row(f"{BLOCK}/depthwise/bn", "_blocks.{index}._bn1.{leaf}"),
        Row(f"{BLOCK}/project/layer", "_blocks.{index}._project_conv.{leaf}", conv),
        Row(f"{BLOCK}/project/bn", "_blocks.{index}._bn2.{leaf}"),
        Row("top/layer", "_conv_head.{leaf}", conv),
        Row("top/bn", "_bn1.{leaf}"),
        Row("head", "_fc.{leaf}"),
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
