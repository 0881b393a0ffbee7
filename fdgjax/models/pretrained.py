"""Pretrained weights: a file with torchvision's, timm's or its package's names for a network of the registry.

The two agree on ResNets; a vision transformer's names are timm's. Names are data: a table for each network in
`PRETRAINED`.
"""

import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Model, Variables
from fdgjax.errors import UserError
from fdgjax.models.weight_files import read_tensors
from fdgjax.randomness import any_key
from fdgjax.variables import flatten, module_of, unflatten

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
}
"""The networks that take weights from files, and their names there."""

HEAD = "gaussian"
"""Where the variables of a head are (`fdgjax.models.heads`), which files do not contain: they are initialised."""

UNUSED = ".num_batches_tracked"
"""PyTorch's counter, which no variable holds."""


class Weights(NamedTuple):
    """A file's tensors by name, and the network that they are for."""

    file: str
    network: str
    tensors: Mapping[str, np.ndarray]


def read_weights(file: str, network: str, unit: str = "") -> Weights:
    """The tensors of a file (see `read_tensors`) for an entry of `MODELS` with units of a kind, '' for its own.

    Raises:
      UserError: a network or units without pretrained names; no file, or one of another format.
    """
    if network not in PRETRAINED:
        raise UserError(
            f"config.model.pretrained got '{file}' for the model '{network}'; expected one of the models that take "
            f"weights from a file: {', '.join(PRETRAINED)}"
        )
    own = PRETRAINED[network].unit
    if unit not in ("", own):
        raise UserError(
            f"config.model.pretrained got '{file}' with units '{unit}' (config.model.unit, or what the method asks "
            f"for); expected {network}'s own, '{own}', or no file"
        )
    tensors = read_tensors(file)
    return Weights(file, network, {name: tensor for name, tensor in tensors.items() if not name.endswith(UNUSED)})


def note_scaling(weights: Weights, scaling: str) -> None:
    """A log line where images are scaled otherwise than published weights of the network expect."""
    if scaling != (expected := PRETRAINED[weights.network].scaling):
        logging.getLogger("fdgjax").info(
            "images are scaled by data.scaling=%s; published weights of %s expect %s",
            *(scaling, weights.network, expected),
        )


def starting_from(weights: Weights, model: Model) -> Model:
    """The model, with the file's weights instead of those that `init` draws.

    If the file has no last layer, or one for another number of classes, the initialised one stays (a log line reports
    it).

    Raises:
      UserError: a tensor that is missing, surplus or of another shape; the first one is named.
    """
    return with_values(model, convert(weights, jax.eval_shape(model.init, any_key())))


def with_values(model: Model, values: Mapping[str, np.ndarray]) -> Model:
    """The model, with given values by path instead of those that `init` draws; it may be a part of their network."""

    def init(key: jax.Array) -> Variables:
        drawn = flatten(model.init(key))
        return unflatten({path: jnp.asarray(values[path]) if path in values else drawn[path] for path in drawn})

    return model._replace(init=init)


def convert(weights: Weights, shapes: Variables) -> dict[str, np.ndarray]:
    """The file's variables by path, for a model whose variables have these shapes and types; see `starting_from`."""
    wanted = {path: leaf for path, leaf in flatten(shapes).items() if not module_of(path).startswith(HEAD)}
    rows = {path: row_of(path, weights.network) for path in wanted}
    names = {path: name_of(path, rows[path]) for path in wanted}
    fresh = fresh_head(weights, {names[path]: wanted[path].shape for path in wanted if module_of(path) == "head"})
    found: dict[str, np.ndarray] = {}
    for path, leaf in wanted.items():
        if names[path] not in fresh:
            layout = rows[path].layout
            tensor = tensor_for(path, names[path], layout.shape(leaf.shape), weights)
            found[path] = np.ascontiguousarray(layout.convert(tensor, leaf.shape), leaf.dtype)
    if surplus := sorted(weights.tensors.keys() - set(names.values())):
        raise UserError(
            f"{weights.file} has '{surplus[0]}', which {weights.network} has no place for; expected weights of this "
            "network by torchvision's or timm's names"
        )
    return found


def tensor_for(path: str, name: str, shape: Shape, weights: Weights) -> np.ndarray:
    """The tensor of that name for a variable; a `UserError` where there is none, or not of that shape and of floats."""
    if name not in weights.tensors:
        raise UserError(
            f"{weights.file} has no tensor '{name}'; expected one of shape {list(shape)} for {weights.network}'s "
            f"{path}: take weights of this network by torchvision's or timm's names"
        )
    tensor = weights.tensors[name]
    if tensor.shape != shape or not jnp.issubdtype(tensor.dtype, jnp.floating):
        raise UserError(
            f"{weights.file} has '{name}' of shape {list(tensor.shape)} and type {tensor.dtype}; expected floats of "
            f"{list(shape)} for {weights.network}'s {path}: the file, model.name, model.width and data.image_size must "
            "fit together"
        )
    return tensor


def fresh_head(weights: Weights, head: Mapping[str, Shape]) -> frozenset[str]:
    """Names of the last layer's tensors where it cannot come from the file: all or none. Logs it.

    head: the variables' shapes by the tensors' names.
    """
    held = {name: weights.tensors[name].shape for name in head if name in weights.tensors}
    (kernel,) = (name for name, shape in head.items() if len(shape) == 2)
    features, classes = head[kernel]
    if not held:
        reason = "has no last layer"
    elif kernel in held and held[kernel][1:] == (features,) and held[kernel][0] != classes:
        reason = f"has a last layer for {held[kernel][0]} classes"
    else:
        return frozenset()
    logging.getLogger("fdgjax").info("%s %s: that for %d classes starts fresh", weights.file, reason, classes)
    return frozenset(head)


def row_of(path: str, network: str) -> Row:
    """The row for a variable's path."""
    return next(row for row in PRETRAINED[network].rows if re.fullmatch(row.ours, module_of(path)))


def name_of(path: str, row: Row) -> str:
    """The name in the file of the tensor for a variable's path: `params/stem/bn/scale` is `bn1.weight`."""
    match = re.fullmatch(row.ours, module_of(path))
    words = match.groupdict() if match else {}
    return row.theirs.format(leaf=LEAVES[path.rpartition("/")[2]], index=int(words.get("block", 1)) - 1, **words)
