"""Converting pretrained weights, named as in torchvision, timm or a package, to variables of a registered network.

The names are in `fdgjax.models.pretrained.weight_names`.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Model, Variables
from fdgjax.models.pretrained.hosted_weights import check_network
from fdgjax.models.pretrained.weight_files import read_tensors
from fdgjax.models.pretrained.weight_names import LEAVES, PRETRAINED, Shape, WeightPattern
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten, module_of, unflatten

HEAD_MODULES = ("gaussian", "projector", "highlighter", "adapter")
"""The modules with heads' variables (`fdgjax.models.heads`); files do not contain them, so they are initialised."""

UNUSED = ".num_batches_tracked"
"""The suffix of PyTorch's batch counters, which have no variable here."""

WRAPPERS = ("module.", "_orig_mod.", "model.")
"""The prefixes that PyTorch's `DataParallel`, its `compile` and Lightning put before all names."""

LOGGER = logging.getLogger("fdgjax")


class WeightFile(NamedTuple):
    """A file's tensors by name, and the network they are for."""

    file: str
    network: str
    tensors: Mapping[str, np.ndarray]


def read_weights(file: str, network: str, unit: str = "") -> WeightFile:
    """The tensors of a file (see `read_tensors`) for an entry of `MODELS` with units `unit`, '' for its own.

    Raises:
      UserError: a network or units without pretrained names; a missing file, another format, or a repository with
        another network's weights.
    """
    check_network(file, network)
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
    tensors = {name: tensor for name, tensor in read_tensors(file).items() if not name.endswith(UNUSED)}
    return WeightFile(file, network, unwrapped(tensors, file))


def unwrapped(tensors: dict[str, np.ndarray], file: str) -> dict[str, np.ndarray]:
    """The tensors by their names without the prefix of a wrapper, if all have one, which is logged."""
    for prefix in WRAPPERS:
        if tensors and all(name.startswith(prefix) for name in tensors):
            LOGGER.info("%s: takes the names without '%s', with which all begin", file, prefix)
            return unwrapped({name.removeprefix(prefix): tensor for name, tensor in tensors.items()}, file)
    return tensors


def note_scaling(weights: WeightFile, scaling: str) -> None:
    """Logs how images are scaled, and whether the network's published weights expect that."""
    names = PRETRAINED[weights.network]
    agrees = ", as" if scaling == names.scaling else f"; {names.scaling} is what"
    LOGGER.info(f"images are scaled by data.scaling={scaling}{agrees} {names.published} expect")


def with_values(model: Model, values: Mapping[str, np.ndarray]) -> Model:
    """The model, with given values by path instead of those that `init` draws; values of other paths are ignored."""

    def init(key: jax.Array) -> Variables:
        drawn = flatten(model.init(key))
        return unflatten({path: jnp.asarray(values[path]) if path in values else drawn[path] for path in drawn})

    return model._replace(init=init)


def in_files(module: str) -> bool:
    """Whether files of weights have a module's variables: those of all modules but heads."""
    return not module.startswith(HEAD_MODULES)


def convert(weights: WeightFile, shapes: Variables) -> dict[str, np.ndarray]:
    """The file's variables by path, for a model whose variables have these shapes and types.

    Without those of the last layer if the file has none, or one for another number of classes. A log line says which
    last layer it is.

    Raises:
      UserError: a tensor that is missing, surplus or of another shape, with numbers that are not finite or variances
        below zero; the first one is named.
    """
    wanted = {path: leaf for path, leaf in flatten(shapes).items() if in_files(module_of(path))}
    rows = {path: row_of(path, weights.network) for path in wanted}
    names = {path: tensor_name(path, rows[path]) for path in wanted}
    last = {names[path]: wanted[path].shape for path in wanted if module_of(path) == "head"}
    why_fresh = fresh_head(weights, last, more_features="highlighter" in shapes["params"])
    fresh = last.keys() if why_fresh else ()
    found: dict[str, np.ndarray] = {}
    for path, leaf in wanted.items():
        if names[path] not in fresh:
            layout = rows[path].layout
            tensor = tensor_for(path, names[path], layout.shape(leaf.shape), weights)
            found[path] = np.ascontiguousarray(layout.convert(tensor, leaf.shape), leaf.dtype)
            check_numbers(path, names[path], found[path], weights.file)
    if surplus := sorted(weights.tensors.keys() - set(names.values())):
        raise UserError(
            f"{weights.file} has '{surplus[0]}', which {weights.network} has no place for; expected weights of this "
            f"network by the names of {PRETRAINED[weights.network].source}"
        )
    say_head(weights, wanted, why_fresh)
    return found


def check_numbers(path: str, name: str, numbers: np.ndarray, file: str) -> None:
    """Raises a `UserError` for numbers of a variable that no training leaves."""
    if not np.isfinite(numbers).all():
        raise UserError(
            f"{file} has numbers in '{name}' that are NaN or infinite in float32; expected finite ones: take a file "
            "from before its training diverged"
        )
    if path.endswith("/var") and numbers.min(initial=0) < 0:
        raise UserError(
            f"{file} has {numbers.min():g} in '{name}'; expected variances, which are not negative: the file is "
            "damaged or not a network's"
        )


def tensor_for(path: str, name: str, shape: Shape, weights: WeightFile) -> np.ndarray:
    """The tensor of that name for a variable; raises a `UserError` if it is missing, not of that shape or not float."""
    if name not in weights.tensors:
        raise UserError(
            f"{weights.file} has no tensor '{name}'; expected one of shape {list(shape)} for {weights.network}'s "
            f"{path}: take weights of this network by the names of {PRETRAINED[weights.network].source}"
        )
    tensor = weights.tensors[name]
    if tensor.shape != shape or not jnp.issubdtype(tensor.dtype, jnp.floating):
        raise UserError(
            f"{weights.file} has '{name}' of shape {list(tensor.shape)} and type {tensor.dtype}; expected floats of "
            f"{list(shape)} for {weights.network}'s {path}: the file, model.name, model.width and data.image_size must "
            "fit together"
        )
    return tensor


def fresh_head(weights: WeightFile, head: Mapping[str, Shape], *, more_features: bool = False) -> str:
    """Why the last layer cannot be loaded from the file, '' if it can.

    head: the variables' shapes by the tensors' names. more_features: whether the model's head adds some.
    """
    held = {name: weights.tensors[name].shape for name in head if name in weights.tensors}
    (kernel,) = (name for name, shape in head.items() if len(shape) == 2)
    features, classes = head[kernel]
    if not held:
        return "has no last layer"
    if kernel in held and held[kernel][1:] == (features,) and held[kernel][0] != classes:
        return f"has a last layer for {held[kernel][0]} classes"
    return "has a last layer for the features without the attention's" if more_features else ""


def say_head(weights: WeightFile, wanted: Mapping[str, Any], why_fresh: str) -> None:
    """Logs where the last layer comes from."""
    classes = wanted["params/head/kernel"].shape[-1]
    if why_fresh:
        LOGGER.info("%s %s: that for %d classes starts fresh", weights.file, why_fresh, classes)
    else:
        LOGGER.info("%s: takes the file's last layer for %d classes, in the file's order", weights.file, classes)


def row_of(path: str, network: str) -> WeightPattern:
    """The row for a variable's path."""
    return next(row for row in PRETRAINED[network].rows if re.fullmatch(row.ours, module_of(path)))


def tensor_name(path: str, row: WeightPattern) -> str:
    """The name in the file of the tensor for a variable's path: `params/stem/bn/scale` is `bn1.weight`."""
    match = re.fullmatch(row.ours, module_of(path))
    words = match.groupdict() if match else {}
    return row.theirs.format(leaf=LEAVES[path.rpartition("/")[2]], index=int(words.get("block", 1)) - 1, **words)
