"""A method's entry: how the rest of the package knows it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fdgjax.contract import Method, Setup


def plain_images(h: Any) -> bool:
    """With no hyperparameters."""
    del h
    return False


def augmented_images(h: Any) -> bool:
    """With any hyperparameters."""
    del h
    return True


class Entry(NamedTuple):
    """A method of the registry; stands as `ENTRY` in the method's file.

    name: on the command line, the name of the file. hyper: its hyperparameters, a frozen dataclass. build: the method
    for a setup. summary: one line on what it is.
    unit: the entry of `fdgjax.models.UNITS` that it needs; '' for any.
    head: the entry of `fdgjax.models.HEADS` that it needs; '' for any.
    unlabelled: whether it learns without labels, from random views, and is evaluated by a linear probe.
    pixels: by its hyperparameters, whether it uses images otherwise than as its model's input, such as random views of
      them: what frozen stages of the model make of an image then cannot be kept.
    pooled: by its hyperparameters, whether it trains on all data gathered at one client: `Method.pooled`, before it is
      built.
    protocol: the entry of `fdgjax.data.protocols.PROTOCOLS` that its configs start from; with
      `labelled_server` it needs a server that holds labelled data, and runs with no other.
    presets: keys of a config by data set or preset, laid over those of `fdgjax.config.presets`.
    """

    name: str
    hyper: type[Any]
    build: Callable[[Setup, Any], Method]
    summary: str
    unit: str = ""
    head: str = ""
    unlabelled: bool = False
    pixels: Callable[[Any], bool] = plain_images
    pooled: Callable[[Any], bool] = plain_images
    protocol: str = "leave_one_out"
    presets: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
