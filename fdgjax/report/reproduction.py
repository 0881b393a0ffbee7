"""The command that reproduces a run."""

import shlex
from collections.abc import Mapping
from typing import Any

from flax.traverse_util import flatten_dict

from fdgjax.config import make_config
from fdgjax.config.command_line import leaves
from fdgjax.report.folders import Folder
from fdgjax.utils.command import with_words
from fdgjax.utils.errors import UserError

OMITTED = ("method.name", "data.name", "data.cache_dir")
"""Keys that follow from the config's name and data set, or that concern only the machine."""


def command_of(folder: Folder) -> str:
    """The command of a run, with the keys that differ from the package's own config; with all keys if it has none."""
    config = flatten_dict(folder.config, sep=".")
    method, dataset = config["method.name"], config["data.name"]
    known = defaults(method, dataset)
    changed = [
        f"--config.{key}={value}"
        for key, value in config.items()
        if key not in OMITTED and known.get(key, ...) != value
    ]
    named = f"--config={method}:{dataset}", f"--workdir={folder.path}"
    words = ["fdgjax", *with_words(folder.registering), "train", *named, *changed]
    return shlex.join(words)


def defaults(method: str, dataset: str) -> Mapping[str, Any]:
    """The keys of a method's config for a data set; none where the package has no such config."""
    try:
        return leaves(make_config(method, dataset))
    except UserError:
        return {}
