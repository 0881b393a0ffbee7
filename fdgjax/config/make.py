"""Configs made from a method and a preset, and read back as typed data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_collections
from flax.traverse_util import flatten_dict, unflatten_dict

from fdgjax.config.checks import check_config, unused
from fdgjax.config.presets import PRESETS, dataset_of
from fdgjax.config.schema import Config, experiment_identity, to_plain
from fdgjax.data.numeric_labels import TASKS
from fdgjax.data.sources.arrays import GivenData
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import DATASETS
from fdgjax.methods import METHODS
from fdgjax.methods.parts.hyper import settled
from fdgjax.models.pretrained.weight_names import PRETRAINED
from fdgjax.utils.errors import UserError, users_program
from fdgjax.utils.registry import Registry, lookup

SMALL = 32
"""Images with a side shorter than this get the digits network by default: hFedF's network is made for 32x32 images."""
SECTIONS: Mapping[str, type[Any]] = {
    field.name: type(part)
    for field in dataclasses.fields(Config)
    if field.name != "method" and dataclasses.is_dataclass(part := getattr(Config(), field.name))
}
"""The nested parts of a config that do not depend on the method."""


def make_config(method: str, preset: str = "rotated_digits") -> ml_collections.ConfigDict:
    """The locked config of a method on a data set or with a preset, as a config file returns it.

    Args:
      method: name of the method; its hyperparameters become the keys of `config.method`.
      preset: a data set, with its model, image size and target, or an entry of `fdgjax.config.presets.PRESETS`, which
        names its data set and may set any other key; of a user's arrays the network is by their shape. The method's own
        settings for that preset override it.

    Raises:
      UserError: unknown method, data set or preset, or a preset that sets a key that does not exist, or to a value of
        another type.
    """
    entry = lookup("method", method, METHODS)
    lookup(kind := "data set or preset", preset, Registry(kind, {**DATASETS, **PRESETS}))
    config = ml_collections.ConfigDict(dataclasses.asdict(Config(method=entry.hyper(name=method))))
    config.data.name = dataset_of(preset)
    config.data.protocol = entry.protocol
    if isinstance(given := DATASETS.get(preset), GivenData):
        config.model.name = default_network(given.found) or config.model.name
    config.lock()
    for layer in (PRESETS.get(preset, {}), entry.presets.get(preset, {})):
        with users_program(
            f"the preset '{preset}' of method '{method}'", "keys of the config, with values of their types"
        ):
            config.update(layer)
    return config


def default_network(data: Domains) -> str:
    """The network for a user's arrays where none is chosen; '' for the config's own."""
    shape = data.inputs.shape[1:]
    if not data.images:
        return {1: "mlp", 2: "conv1d"}.get(len(shape), "")
    return "digits_cnn" if min(shape[:2]) < SMALL else ""


def read_config(config: ml_collections.ConfigDict) -> Config:
    """The typed config of a config file, checked.

    Raises:
      UserError: an invalid value; the message names the key, the value and what was expected.
    """
    return from_plain(config.to_dict())


def from_plain(plain: Mapping[str, Any]) -> Config:
    """The typed config of nested plain data, checked and `resolved`; the inverse of `to_plain`.

    Raises:
      UserError: like `read_config`.
    """
    method = plain["method"]
    entry = lookup("method", method["name"], METHODS)
    if {field.name for field in dataclasses.fields(entry.hyper)} != set(method):
        raise UserError(
            f"method.name='{entry.name}' but the other method.* keys belong to another method; "
            f"start from --config={entry.name} instead of setting method.name"
        )
    config = typed(plain)
    check_config(config)
    return resolved(config)


def typed(plain: Mapping[str, Any]) -> Config:
    """The config of nested plain data with all keys of its registered method, not checked."""
    sections = {name: section(**plain[name]) for name, section in SECTIONS.items()}
    method = METHODS[plain["method"]["name"]].hyper(**plain["method"])
    return Config(**{**plain, **sections, "method": method})


def changed_keys(config: Config) -> dict[str, Any]:
    """The keys of an experiment that are not at their defaults, in the form `data.target`, with their values: a key
    that is added to the package changes nothing here."""
    own, default = (
        flatten_dict(experiment_identity(to_plain(one)), sep=".")
        for one in (config, Config(method=type(config.method)(name=config.method.name)))
    )
    return {key: value for key, value in own.items() if value != default[key]}


def completed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """A config as nested plain data, as this version of the package would have written it: missing keys, added after it
    was written, have their defaults, and so have keys that nothing reads, which earlier versions took without an
    effect. A config whose method is not registered is returned unchanged."""
    method = METHODS.get(plain["method"]["name"])
    if method is None:
        return dict(plain)
    defaults = dataclasses.asdict(Config(method=method.hyper(name=method.name)))
    full = {
        key: {**default, **plain.get(key, {})} if isinstance(default, dict) else plain.get(key, default)
        for key, default in defaults.items()
    } | {key: value for key, value in plain.items() if key not in defaults}
    return without_unused(full)


def without_unused(plain: dict[str, Any]) -> dict[str, Any]:
    """The config with keys that nothing reads at their defaults; unchanged where it has keys or choices that this
    version of the package lacks."""
    try:
        idle = list(unused(typed(plain)))
    except (TypeError, LookupError, UserError):
        return plain
    flat = flatten_dict(plain, keep_empty_nodes=True, sep=".") | {one.key: one.default for one in idle}
    return unflatten_dict(flat, sep=".")


def resolved(config: Config) -> Config:
    """The config with the values that follow from other keys, where they are left open: the scaling of images is the
    one that the pretrained weights expect, else `signed`; and what the method needs for its start, such as a
    hypernetwork that generates models near the pretrained one, follows from `model.pretrained`. A regression has none
    of the figures of probabilities that its data set's preset asks for."""
    names = PRETRAINED.get(config.model.name) if config.model.pretrained else None
    scaling = config.data.scaling or (names.scaling if names else "signed")
    figures = config.figures
    if TASKS[config.task].numeric and figures == PRESETS.get(config.data.name, {}).get("figures"):
        figures = ""
    method = settled(config.method, pretrained=bool(config.model.pretrained))
    data = dataclasses.replace(config.data, scaling=scaling)
    return dataclasses.replace(config, data=data, method=method, figures=figures)
