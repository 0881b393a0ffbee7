"""The client model: a network of the registry with its units, head and frozen stages, as the two pure functions of the
contract."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from fdgjax.contract import Model, Output, PyTree, Variables
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.models.frozen import Trunk, count_stages, freeze, on_images
from fdgjax.models.pretrained.convert import WeightFile, convert, with_values
from fdgjax.models.scaling import scaling_function
from fdgjax.models.stages import ALL_STAGES, StageRange
from fdgjax.nn import BatchStatistics, with_statistics
from fdgjax.nn.rounded import rounded_products
from fdgjax.utils.errors import UserError
from fdgjax.utils.processor import AMX, instructions
from fdgjax.utils.random import any_key
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten


def with_floats(tree: PyTree, to: DTypeLike) -> PyTree:
    """The tree with all its floating-point leaves cast to one dtype."""
    return jax.tree.map(lambda leaf: leaf.astype(to) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)


class Rounding(NamedTuple):
    """How a network is computed in a dtype: the casts of its inputs and outputs, and what its calls are within."""

    into: Callable[[PyTree], PyTree]
    out: Callable[[PyTree], PyTree]
    context: Callable[[], AbstractContextManager[None]] = nullcontext


UNROUNDED = Rounding(lambda tree: tree, lambda tree: tree)
DTYPES: Mapping[str, Rounding] = {
    "float32": UNROUNDED,
    "bfloat16": Rounding(partial(with_floats, to=jnp.bfloat16), partial(with_floats, to=jnp.float32)),
}
"""The dtypes in which a network can be computed."""
CPU_DTYPES: Mapping[str, Rounding] = {**DTYPES, "bfloat16": UNROUNDED._replace(context=rounded_products)}
"""The same on CPUs, which gain by bfloat16 only in products: all arrays between them stay in float32."""


def note_dtype(dtype: str) -> str:
    """A note for a dtype that is no faster than float32 on this CPU; else empty. Starts JAX if it has not started."""
    if dtype == "float32" or jax.default_backend() != "cpu" or AMX in instructions():
        return ""
    return f"config.dtype={dtype}: this processor has no AMX, and is at least as fast in float32"


class ClientModel(NamedTuple):
    """A network and its frozen and trained parts.

    network: the whole network. trunk: its frozen stages; None if nothing is frozen.
    rest: the trained model; its inputs are the trunk's features, or images without a trunk.
    whole: the model with the variables of `rest` whose inputs are images.
    """

    network: nn.Module
    trunk: Trunk | None
    rest: Model
    whole: Model


def make_client_model(
    network: partial[nn.Module],
    name: str,
    image_shape: tuple[int, ...],
    *,
    frozen: int,
    scaling: str,
    weights: WeightFile | None,
    dtype: str = "float32",
    statistics: BatchStatistics | None = None,
) -> ClientModel:
    """The client model.

    Args:
      network: makes the network, or a `part` of it (`make_network`).
      name: its entry of `MODELS`.
      image_shape: `(H, W, channels)`.
      frozen: number of frozen stages; -1 for all.
      scaling: the entry of `SCALINGS` for the images that the network sees.
      weights: a file's tensors to start from, or None.
      dtype: the entry of `DTYPES` in which the trained part is computed; frozen stages are always computed in float32.
      statistics: how the BatchNorm layers of the trained part take a batch's statistics, see `as_model`.

    Raises:
      UserError: `frozen` exceeds the number of stages, weights do not fit, or the network cannot be computed in
        `dtype`.
    """
    whole, stages = network(), MODELS[name].stages[: count_stages(frozen, name, MODELS[name].stages)]
    model = as_model(whole, image_shape, scaling, dtype, statistics)
    values: Mapping[str, np.ndarray] = convert(weights, model.shapes()) if weights else {}
    if not stages:
        trained = with_values(model, values)
        check_dtype(whole, image_shape, name, dtype)
        return ClientModel(whole, None, trained, trained)
    first = as_model(network(part=StageRange(0, len(stages))), image_shape, scaling)
    trunk = freeze(first, image_shape, stages, values)
    trained_part = network(part=StageRange(len(stages)))
    rest = with_values(as_model(trained_part, trunk.shape, dtype=dtype, statistics=statistics), values)
    check_dtype(trained_part, trunk.shape, name, dtype)
    return ClientModel(whole, trunk, rest, on_images(trunk, rest))


def check_dtype(module: nn.Module, shape: Sequence[int], name: str, dtype: str) -> None:
    """Raises a `UserError` if a network, perhaps a user-defined one, cannot be computed in a dtype besides float32 on
    every platform; does not start JAX."""
    if dtype == "float32":
        return
    images, key = jax.ShapeDtypeStruct((2, *shape), jnp.float32), any_key()
    model, low = as_model(module, shape), DTYPES[dtype].into

    def rounded(images: jax.Array, key: jax.Array) -> PyTree:
        variables = {name: low(tree) if name == "params" else tree for name, tree in model.init(key).items()}
        return model.apply(variables, low(images), True, key)

    try:
        jax.eval_shape(rounded, images, key)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"config.dtype got '{dtype}', in which the network '{name}' cannot be computed ({reason}); expected "
            "float32, or a network whose layers take the type of what they are given"
        ) from error


def make_network(
    name: str,
    classes: int,
    *,
    width: float = 1.0,
    unit: str = "",
    head: str = "",
    part: StageRange = ALL_STAGES,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> nn.Module:
    """The network called `name` in `MODELS`.

    Args:
      name: an entry of `MODELS`.
      classes: number of classes.
      width: factor on its channels.
      unit: an entry of `UNITS` for its replaceable units; '' for its own.
      head: an entry of `HEADS` that follows it; '' for none.
      part: the steps that are run; the head is added only if these include the last step.
      settings: further attributes of the network, see `network_settings`.

    Raises:
      UserError: a setting that the network does not have.
    """

    def network(outputs: int) -> nn.Module:
        return MODELS[name](outputs, width, UNITS[unit] if unit else None, part, **settings)

    return HEADS[head or "linear"](network, classes, width) if part.end is None else network(classes)


def sown_features(sown: Mapping[str, Any], without: jax.Array) -> jax.Array:
    """The features among sown values: the network's own, or else those of its one submodule that sows some.

    Args:
      sown: each value by its path.
      without: what they are if nobody sows any.

    Raises:
      UserError: several submodules sow features, and the network itself none.
    """
    found = {path: values for path, values in sown.items() if path.split("/")[-1] == "features"}
    if "features" not in found and len(found) > 1:
        raise UserError(
            f"{len(found)} submodules of the model sow features ({', '.join(found)}), and the model itself none; "
            'expected them of the outermost module: there self.sow("intermediates", "features", x)'
        )
    # Of several values of one name, the last is closest to the logits.
    of = found.get("features") or next(iter(found.values()), (without,))
    return jnp.asarray(of[-1])


def resized(images: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Images `[batch, H, W, channels]` resized to a given `(H, W, channels)`: bilinear, antialiased as in Pillow."""
    if images.shape[1:] == tuple(shape):
        return images
    return jax.image.resize(images, (len(images), *shape), "linear", antialias=True)


def as_model(
    module: nn.Module,
    image_shape: Sequence[int],
    scaling: str = "signed",
    dtype: str = "float32",
    statistics: BatchStatistics | None = None,
) -> Model:
    """A Flax module called as `module(images, train=...)` as the two pure functions of the contract.

    Images of another size are resized first: augmented training images may already have the network's size, evaluation
    images have the stored size. The output's `features` are the last value sown under that name (`sown_features`);
    other sown values are in `extra`.

    Args:
      module: the network.
      image_shape: `(H, W, channels)`, or the shape of one sample's features.
      scaling: the entry of `SCALINGS` for the images that the network sees.
      dtype: the entry of `DTYPES` in which it is computed. Variables, outputs and gradients are float32 in any case;
        parameters and scaled images are cast when the network is called, batch statistics are not. On a CPU `bfloat16`
        casts nothing and rounds the operands of products (`fdgjax.nn.rounded`).
      statistics: how its `fdgjax.nn.BatchNorm` layers take a batch's statistics in training; None for their default.

    Raises:
      UserError: a scaling for another number of channels; when it is applied, features that only several submodules
        sow.
    """
    scale = scaling_function(scaling, image_shape[-1])
    lookup("dtype", dtype, DTYPES)

    def init(key: jax.Array) -> Variables:
        return dict(module.init(key, jnp.zeros((1, *image_shape), jnp.float32), train=False))

    def apply(variables: Variables, images: jax.Array, train: bool, key: jax.Array) -> tuple[Output, Variables]:
        mutable = [name for name in variables if name != "params"] if train else []
        # Asking for the backend starts JAX, which float32 need not.
        low, full, rounding = (CPU_DTYPES if dtype != "float32" and jax.default_backend() == "cpu" else DTYPES)[dtype]
        rounded = {name: low(tree) if name == "params" else tree for name, tree in variables.items()}
        with rounding(), with_statistics(statistics) if statistics else nullcontext():
            returned = module.apply(
                rounded,
                low(scale(resized(images, image_shape))),
                train=train,
                rngs={"dropout": key},
                mutable=[*mutable, "intermediates"],
            )
        logits, changed = full(returned)
        sown = changed.get("intermediates", {})
        features = sown_features(flatten(sown), without=jnp.zeros((len(logits), 0), logits.dtype))
        # Other values sown by submodules are left out.
        extra = {name: of[-1] for name, of in sown.items() if isinstance(of, tuple) and name != "features"}
        return Output(logits, features, extra), {name: changed[name] for name in mutable}

    return Model(init, apply)
