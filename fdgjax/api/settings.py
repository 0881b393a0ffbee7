"""Configs from Python values: a method's name, a config file or an entry, and keys with values."""

import numbers
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from fdgjax.config import make_config
from fdgjax.config.command_line import TYPES, default_of, leaves, read_flags
from fdgjax.config.register import register_method, register_model
from fdgjax.data.sources.domains import Domains
from fdgjax.methods import METHODS, Entry
from fdgjax.models import MODELS
from fdgjax.models.user_module import Network
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup

ACCEPTED: Mapping[type, Callable[[Any], bool]] = {
    bool: lambda value: isinstance(value, bool | np.bool_),
    int: lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool),
    float: lambda value: isinstance(value, numbers.Real) and not isinstance(value, bool),
    str: lambda value: isinstance(value, str | os.PathLike),
}
"""Whether a value is accepted for a key, by the key's type."""

METHOD = re.compile(r"\w+")
"""Matches what can only be a method's bare name, and neither a preset nor a file."""


def config_for(what: str | Entry | ConfigDict) -> ConfigDict:
    """The config that the command line makes of the same argument.

    Args:
      what: `METHOD[:PRESET]`, `FILE.py[:PRESET]`, a method's entry, which is registered, or a config, which is copied.

    Raises:
      UserError: no such method, preset or file.
    """
    if isinstance(what, ConfigDict):
        return what.copy_and_resolve_references()
    if isinstance(what, Entry):
        return make_config(register_method(what))
    if not isinstance(what, str | os.PathLike):
        raise UserError(
            f"the experiment got {type(what).__name__}; expected a method's name, such as 'fedavg', a config file or "
            "an fdgjax.Entry"
        )
    return read_flags(["fdgjax", f"--config={os.fspath(what)}"])[0]


def config_from(
    what: str | Entry | ConfigDict, given: Mapping[str, Domains], model: str | Network | None
) -> ConfigDict:
    """`config_for`, or `config_on` the given arrays, by their name, with the network, which is registered if it is no
    name; None for the config's. Raises like `config_for`."""
    if given:
        (name,) = given
        config = config_on(what, name)
    else:
        config = config_for(what)
    if model is not None:
        set_model(config, model if isinstance(model, str) else register_model("", model, origin=""))
    return config


def config_on(what: str | Entry | ConfigDict, data: str) -> ConfigDict:
    """`config_for`, with the config's data set replaced by one of arrays; raises like `config_for`.

    Args:
      what: as for `config_for`; a bare method name or an entry gets no settings that were chosen for another data set.
      data: the name of the arrays in the registry.
    """
    bare = ""
    if isinstance(what, Entry):
        bare = register_method(what)
    elif isinstance(what, str) and (METHOD.fullmatch(what) or what in METHODS):
        bare = what
    config = make_config(bare, data) if bare else config_for(what)
    places = {"name": data, "dir": "", "target": "", "server": "", "image_size": 0, "same_images": False}
    config.update({"data": places | dict.fromkeys(("label", "categorical", "ignored"), "") | {"missing": "?"}})
    return config


def with_target(values: Mapping[str, Any], target: str | None) -> dict[str, Any]:
    """The keys with the unseen domain, None for that of the keys; raises a `UserError` if both name one."""
    if target is None:
        return dict(values)
    if both := [written for written in values if written.replace("__", ".") == "data.target"]:
        raise UserError(f"the experiment got target={target!r} and {both[0]}={values[both[0]]!r}; expected one of them")
    return {**values, "data.target": target}


def set_values(config: ConfigDict, values: Mapping[str, Any]) -> None:
    """Sets keys such as `rounds`, `data.target` or `data__target`.

    Raises:
      UserError: an unknown key, a section, a value of another type than the key's, or a key in both forms.
    """
    known, seen = leaves(config), dict[str, str]()
    for written, value in values.items():
        key = written.replace("__", ".")
        if seen.setdefault(key, written) != written:
            raise UserError(f"the experiment got {seen[key]} and {written}, which are one key; expected one of them")
        default = default_of(key, known)
        kind = type(default)
        if not ACCEPTED[kind](value):
            raise UserError(f"config.{key} got {value!r}; expected {TYPES[kind][0]}, such as {default!r}")
        config.update_from_flattened_dict({key: os.fspath(value) if kind is str else kind(value)})


def set_model(config: ConfigDict, name: str) -> None:
    """Sets the network to a registered one, with default width and units, no pretrained weights and nothing frozen."""
    lookup("model.name", name, MODELS)
    config.update({"model": {"name": name, "width": 1.0, "unit": "", "pretrained": "", "frozen": 0}})
