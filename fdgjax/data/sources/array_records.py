"""From a source to arrays: a TFDS builder writes array_record files, Grain reads, decodes and resizes them.

TensorFlow is not used. This module imports tensorflow_datasets; import it only where a data set is prepared.
"""

import contextlib
import errno
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grain
import numpy as np
import tensorflow_datasets as tfds

from fdgjax.data.sources.decoding import decode_file, quiet_pillow
from fdgjax.data.sources.source import Source
from fdgjax.utils.errors import UserError


@dataclass(eq=False, kw_only=True)
class SourceConfig(tfds.core.BuilderConfig):
    """Which data set the builder writes."""

    source: Source = field(repr=False)


class LocalInfo(tfds.core.DatasetInfo):
    """A data set's description that TFDS does not look up online."""

    def initialize_from_bucket(self) -> None:
        """Does nothing; TFDS's own would leave an empty temporary folder behind at every call."""


Keyed = Iterator[tuple[int, dict[str, Any]]]
"""Examples with their numbers."""

IMAGES_OF_A_SHARD = 1024
"""TFDS holds one shard's encoded images in memory while it writes them."""
MOST_SHARDS = 256
"""Each is an open file while images are decoded; shards of more images have more of them."""


class DomainImages(tfds.core.ShardBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A TFDS data set of images with a label and a domain; the config is a `Source`.

    One split `train` holds all domains, since folder names need not be valid names of splits. Examples keep
    the order of the source. Images keep their original encoding: nothing is lost, and any size can be
    decoded later. Shards are written one after another: a builder that shuffles would need TensorFlow for more than
    1 GB of images.
    """

    def _info(self) -> tfds.core.DatasetInfo:
        source = self.builder_config.source
        features = {
            "image": tfds.features.Image(shape=(None, None, source.channels)),
            "label": tfds.features.ClassLabel(names=source.class_names),
            "domain": tfds.features.ClassLabel(names=source.domain_names),
            "file": tfds.features.Text(),
        }
        return LocalInfo(
            builder=self,
            description=source.description,
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,
        )

    def _shard_iterators_per_split(self, dl_manager: Any) -> dict[str, list[Callable[[], Keyed]]]:
        del dl_manager
        source = self.builder_config.source
        keyed = ((key, example._asdict()) for key, example in enumerate(source.examples()))
        each = max(IMAGES_OF_A_SHARD, -(-source.samples // MOST_SHARDS))
        full = (source.samples - 1) // each
        # The last shard takes what is left, so that the source comes to its end.
        return {"train": [lambda: itertools.islice(keyed, each)] * full + [lambda: keyed]}

    def _log_download_bytes(self) -> None:
        """Prints nothing: there is no download, and the caller logs what is prepared."""

    _log_download_done = _log_download_bytes


def builder(name: str, version: str, source: Source, folder: Path) -> DomainImages:
    """The builder of `source` with its files in `folder/domain_images/<name>/<version>`."""
    config = SourceConfig(name=name, version=version, description=source.description, source=source)
    with _quiet():
        return DomainImages(data_dir=folder, config=config, file_format="array_record")


def prepare(records: DomainImages) -> None:
    """Writes the builder's files unless they exist; without output and without network access.

    Raises:
      OSError: the disk is full.
      UserError: what the source's `examples` raises.
    """
    with _quiet():
        try:
            records.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
        except RuntimeError as error:  # how the record writer reports a full disk
            if os.strerror(errno.ENOSPC) in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise


def decoded(records: DomainImages, size: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Image uint8 `[size, size, channels]`, label and domain of every example, in order.

    Raises:
      UserError: an image cannot be decoded; the message names its file.
    """
    with _quiet():
        source = records.as_data_source(split="train", decoders={"image": tfds.decode.SkipDecoding()})
    decode = partial(_decode, size=size, channels=records.builder_config.source.channels)
    threads = grain.ReadOptions(num_threads=4, prefetch_buffer_size=64)
    with quiet_pillow():
        for image, label, domain in grain.MapDataset.source(source).map(decode).to_iter_dataset(threads):
            if isinstance(image, UserError):
                raise image
            yield image, label, domain


def _decode(example: dict[str, Any], *, size: int, channels: int) -> tuple[np.ndarray | UserError, int, int]:
    # An error is returned as a value, since Grain adds its own lines to exceptions raised by a transformation.
    try:
        file = example["file"].decode(errors="replace")
        image: np.ndarray | UserError = decode_file(example["image"], file, size, channels)
    except UserError as error:
        image = error
    return image, int(example["label"]), int(example["domain"])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences TFDS's progress bars and notices; restores the caller's settings afterwards."""
    logger = logging.getLogger("absl")
    level = logger.level
    bars = tfds.core.utils.tqdm_utils._active
    logger.setLevel(logging.ERROR)
    tfds.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(level)
        if bars:
            tfds.enable_progress_bar()
