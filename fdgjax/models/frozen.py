"""A frozen trunk: the first stages of a network as a pure function of images, the same for all clients.

    whole(image) = rest(trunk(image))

Clients hold only the rest: the trunk's variables are constants, with one copy for all clients, so that they are never
trained, sent or generated, and its BatchNorm normalises by its initial statistics. The trunk's features of an image
never change, so they are computed once and kept, and the data set is then one of features (`trunk_features`). If images
are changed at random before they reach the model, the trunk is computed in each step instead (`on_images`), or the
features of a few random views of each image are kept, too (`Copies`).
"""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Model, Output, Variables
from fdgjax.data.augmentations.view import View
from fdgjax.data.pixels import as_floats
from fdgjax.data.sources.cache import cache_root, publishing, read_cached, remove_abandoned
from fdgjax.models.pretrained.convert import with_values
from fdgjax.utils.checksums import verify
from fdgjax.utils.errors import UserError
from fdgjax.utils.process_memory import available_bytes
from fdgjax.utils.variables import bytes_of, flatten

ALL_STAGES = -1
"""The value of `config.model.frozen` that freezes all stages: only the last layer is trained."""

IMAGES_AT_ONCE = 64
"""The batch size for computing features; fixed, so that their rounding does not depend on a run's batch size."""

MEBIBYTE = 2**20


class Copies(NamedTuple):
    """Augmented copies of every image, whose features are kept beside the image's own.

    number: of copies of each image. view: what they are. name: what the view is called.
    The copies of an image depend on its place in the data set alone, so that all runs and splits share them.
    """

    number: int
    view: View
    name: str


class Trunk(NamedTuple):
    """The frozen stages of a network.

    model: the stages as a model whose logits are the features. variables: its constant variables.
    stages: the stages' names. shape: the shape of one image's features, float32. content: what tells the variables that
    a file gave from another file's (`content_of`); '' without a file.
    """

    model: Model
    variables: Variables
    stages: tuple[str, ...]
    shape: tuple[int, ...]
    content: str = ""

    def __call__(self, images: jax.Array) -> jax.Array:
        """Images `[batch, H, W, channels]` in [-1, 1] -> features `[batch, ...]`."""
        return self.model.evaluate(self.variables, images).logits


def count_stages(frozen: int, network: str, stages: tuple[str, ...]) -> int:
    """The number of stages that `config.model.frozen` freezes in a network with these stages.

    Raises:
      UserError: more stages than there are.
    """
    if not ALL_STAGES <= frozen <= len(stages):
        of_network = f"its stages are {', '.join(stages)}" if stages else "it has no stages"
        raise UserError(
            f"config.model.frozen got {frozen} for the model '{network}'; expected at most {len(stages)}, or -1 for "
            f"all: {of_network}"
        )
    return len(stages) if frozen == ALL_STAGES else frozen


def freeze(
    model: Model, image_shape: tuple[int, ...], stages: tuple[str, ...], values: Mapping[str, np.ndarray]
) -> Trunk:
    """The trunk, from a model of a network's first stages; variables that no file holds are the same for all seeds.

    Args:
      model: the stages as a model.
      image_shape: `(H, W, channels)`.
      stages: their names.
      values: a file's values by path, of these stages and others; empty without a file.
    """
    model = with_values(model, values)
    variables = jax.device_get(jax.jit(model.init)(jax.random.key(0)))
    image = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    features = jax.eval_shape(model.evaluate, variables, image).logits
    own = {path: values[path] for path in flatten(variables) if path in values}
    return Trunk(model, variables, stages, tuple(features.shape[1:]), content_of(own))


def content_of(values: Mapping[str, np.ndarray]) -> str:
    """12 hexadecimal digits that change with the values, their shapes and paths; '' for none."""
    found = hashlib.sha256()
    for path, value in sorted(values.items()):
        found.update(repr((path, value.shape)).encode() + np.ascontiguousarray(value).tobytes())
    return found.hexdigest()[:12] if values else ""


def trunk_content(trunk: Trunk | None) -> str:
    """`Trunk.content`; '' without frozen stages."""
    return trunk.content if trunk else ""


def check_content(trunk: Trunk | None, content: str, pretrained: str) -> None:
    """Raises a `UserError` if the frozen stages hold another file's values than those that training began with.

    Args:
      trunk: the frozen stages; None for none.
      content: of the stages that training began with, '' where it is not known.
      pretrained: the file, as the config names it.
    """
    if trunk and content and trunk.content != content:
        raise UserError(
            f"config.model.pretrained='{pretrained}' holds other weights of the frozen stages than training began "
            f"with: their digest is {content} there and {trunk.content or 'none'} here; put that file back in its place"
        )


def on_images(trunk: Trunk, rest: Model) -> Model:
    """The whole network as a model with the rest's variables; the trunk is computed in each call."""

    def apply(variables: Variables, images: jax.Array, train: bool, key: jax.Array) -> tuple[Output, Variables]:
        return rest.apply(variables, trunk(images), train, key)

    return rest._replace(apply=apply)


def trunk_features(
    trunk: Trunk, images: np.ndarray, identity: Mapping[str, object], cache_dir: str, copies: Copies | None = None
) -> np.ndarray:
    """The features of all images, float32 `[samples, ...]`, memory-mapped from the cache; logs their size. With
    `copies`, `[(1 + number) * samples, ...]`: the features of all images, then those of each one's first copy, ...

    A cache entry belongs to one trunk, including its variables, and one array of images; every byte of it is verified,
    and a damaged entry is computed again.

    Args:
      trunk: the frozen stages.
      images: uint8 `[samples, H, W, channels]`.
      identity: what else determines the features: network, units, scaling.
      cache_dir: as for `fdgjax.data.sources.loading.load_data`.
      copies: augmented copies to be kept, too.

    Raises:
      UserError: the cache cannot be written.
    """
    folder = cache_root(cache_dir) / "features"
    named = {"augmentation": copies.name, "copies": copies.number} if copies else {}
    entry = folder / digest(trunk, images, {**identity, **named})
    say_size(trunk, images, copies, entry)
    try:
        remove_abandoned(folder)
        if (found := read_cached(entry, read_features)) is not None:
            return found
        with publishing(entry) as unfinished:
            write_features(trunk, images, copies, unfinished / "features.npy")
        return read_features(entry)
    except OSError as error:
        raise UserError(
            f"the features of the frozen trunk cannot be kept in {entry} ({error}); expected a folder with space; free "
            "some, delete that folder, or set config.data.cache_dir or config.model.keep_features=False"
        ) from error


def read_features(entry: Path) -> np.ndarray:
    """The features in a folder of the cache, memory-mapped.

    Raises:
      Damaged: the files are not what was written.
    """
    return np.load(verify(entry) / "features.npy", mmap_mode="r", allow_pickle=False)


def digest(trunk: Trunk, images: np.ndarray, identity: Mapping[str, object]) -> str:
    """16 hexadecimal digits that change with anything that the features depend on."""
    content = hashlib.blake2b(repr((sorted(identity.items()), trunk.stages, jax.default_backend())).encode())
    for path, leaf in sorted(flatten(trunk.variables).items()):
        content.update(repr((path, leaf.shape)).encode() + np.ascontiguousarray(leaf).tobytes())
    content.update(repr(images.shape).encode())
    for start in range(0, len(images), 1024):
        content.update(np.ascontiguousarray(images[start : start + 1024]).data)
    return content.hexdigest()[:16]


def write_features(trunk: Trunk, images: np.ndarray, copies: Copies | None, path: Path) -> None:
    """Writes the features of all images, and of their copies, as one array, computed `IMAGES_AT_ONCE` at a time."""

    @jax.jit
    def of_bytes(some: jax.Array) -> jax.Array:
        return trunk(as_floats(some)).astype(jnp.float32)

    @jax.jit
    def of_copy(some: jax.Array, start: int, number: int) -> jax.Array:
        assert copies is not None, "there are copies to compute"
        view, key = copies.view, jax.random.fold_in(jax.random.key(0), number)

        def one(index: jax.Array, image: jax.Array) -> jax.Array:
            return view(jax.random.fold_in(key, index), image[None])[0]

        # One image at a time: a copy depends on no other image of the batch.
        indices = start + jnp.arange(len(some))
        return trunk(jax.lax.map(lambda pair: one(*pair), (indices, as_floats(some)))).astype(jnp.float32)

    blocks = 1 + (copies.number if copies else 0)
    with open(path, "wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (blocks * len(images), *trunk.shape)}
        np.lib.format.write_array_header_1_0(stream, header)
        for block in range(blocks):
            for start in range(0, len(images), IMAGES_AT_ONCE):
                some = np.asarray(images[start : start + IMAGES_AT_ONCE])
                filled = np.pad(some, [(0, IMAGES_AT_ONCE - len(some)), *[(0, 0)] * (some.ndim - 1)])
                features = of_copy(filled, start, block) if block else of_bytes(filled)
                stream.write(np.asarray(features, "<f4")[: len(some)].tobytes())


def say_size(trunk: Trunk, images: np.ndarray, copies: Copies | None, kept: Path) -> None:
    """Logs the size of the features, before they are computed."""
    count, numbers = len(images), int(np.prod(trunk.shape))
    needed, free = 4 * count * numbers * (1 + (copies.number if copies else 0)), available_bytes()
    copied = f" and {copies.number} augmented copies of each ({copies.name})" if copies else ""
    advice = "" if free is None or needed < free else f", more than the {free / MEBIBYTE:,.0f} MiB that are free"
    where = f"cached in {kept}" if kept.is_dir() else f"once, kept in {kept}"
    logging.getLogger("fdgjax").info(
        f"features of the frozen trunk ({trunk.stages[0]} to {trunk.stages[-1]}), {numbers:,} numbers for each of "
        f"{count:,} images{copied}: {needed / MEBIBYTE:,.0f} MiB{advice} "
        f"(the images: {images.nbytes / MEBIBYTE:,.0f} MiB), {where}"
    )


def say_in_steps(trunk: Trunk, why: str) -> None:
    """Logs that a trunk's features are not kept, and why."""
    size = f"{bytes_of(trunk.variables) / MEBIBYTE:,.1f} MiB"
    logging.getLogger("fdgjax").info(
        f"the frozen trunk ({trunk.stages[0]} to {trunk.stages[-1]}, {size}) is computed in each step: {why}"
    )


def say_random(network: str) -> None:
    """Logs that no pretrained weights were loaded for the frozen stages."""
    logging.getLogger("fdgjax").info(
        "the frozen stages of %s are random, the same for every seed: config.model.pretrained names no weights", network
    )
