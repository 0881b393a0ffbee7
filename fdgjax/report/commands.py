"""The command that reproduces a run."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdgjax.config.command_line import leaves, read_flags
from fdgjax.errors import UserError
from fdgjax.report.reading import Folder, flatten

OMITTED = ("method.name", "data.name", "data.cache_dir")
"""Keys that follow from the config file and its data set, or that concern the machine alone."""


def command_of(folder: Folder) -> str:
    """The command of a run, with the keys that differ from its config file's; with all keys if that file is missing."""
    config = dict(flatten(folder.config))
    method, dataset = config["method.name"], config["data.name"]
    file = f"configs/{method}.py"
    # A config file is a program: the name of a method is no path to another one.
    known = defaults(file, dataset) if method.isidentifier() else {}
    changed = [
        f"--config.{key}={value}"
        for key, value in config.items()
        if key not in OMITTED and known.get(key, ...) != value
    ]
    words = ["python", "-m", "fdgjax.main", f"--config={file}:{dataset}", f"--workdir={folder.path}", *changed]
    return shlex.join(words)


def defaults(file: str, dataset: str) -> Mapping[str, Any]:
    """The keys of a config file for a data set; none where there is no such file."""
    try:
        if not Path(file).is_file():
            return {}
        return dict(leaves(read_flags(["", f"--config={file}:{dataset}"]).config))
    except (OSError, UserError):  # a name that is too long, or unknown
        return {}
