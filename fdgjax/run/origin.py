"""What a run's compiled programs are made from, besides the shapes of their arguments, as one digest."""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import fdgjax
from fdgjax.config import Config, identity, to_plain
from fdgjax.config.registering import provenance
from fdgjax.files import file_checksum
from fdgjax.methods import METHODS
from fdgjax.models import MODELS
from fdgjax.models.weight_files import weights_path
from fdgjax.threads import cores, threads

OUTSIDE = ("seed", "selection", "eval_every", "checkpoint_every")
"""Keys of a config that no program depends on: the seed is an argument, the others say when programs run."""

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy")


def made_of(config: Config, known: Mapping[str, Any]) -> str:
    """The digest of all that follows; '' where method, network or data come from outside the package.

    Args:
      config: its keys, and the content of its file of weights. With it go the package's text, the versions of what it
        stands on, JAX's settings, and the processor with its devices.
      known: of the experiment before training: a number in a program may come from it that is no key and no shape.
    """
    parts = (METHODS[config.method.name].build, MODELS[config.model.name].module)
    if provenance(config) or not all(map(is_own, parts)):
        return ""
    pretrained = config.model.pretrained
    facts = {
        "config": {key: value for key, value in identity(to_plain(config)).items() if key not in OUTSIDE},
        "known": known,
        "weights": file_checksum(weights_path(pretrained)) if pretrained else "",
        "package": package_digest(),
        "versions": {name: metadata.version(name) for name in LIBRARIES} | {"python": sys.version},
        "settings": {name: repr(value) for name, value in jax.config.values.items()},
        "environment": {name: value for name, value in os.environ.items() if name.startswith(("XLA_", "LIBTPU_"))},
        "threads": threads(),
        "processor": processor(),
        "devices": [(repr(one), one.device_kind, one.client.platform_version) for one in jax.devices()],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def is_own(thing: Any) -> bool:
    """Whether a function or a class, or what a partial one calls, is this package's."""
    inner = thing.func if isinstance(thing, partial) else thing
    return str(getattr(inner, "__module__", "")).startswith(f"{fdgjax.__name__}.")


def package_digest() -> str:
    """The digest of the package's files."""
    found, folder = hashlib.sha256(), Path(fdgjax.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        found.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()


def processor() -> Mapping[str, Any]:
    """The host's processor: its kind, what it can do, and how many of its cores this process may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:  # not Linux
        lines = [platform.processor()]
    # The clock's rate, which a line gives as well, changes from moment to moment.
    kind = [line for line in lines if not line.startswith(("cpu MHz", "bogomips", "processor"))]
    return {"machine": platform.machine(), "kind": kind, "cores": cores(), "all": os.cpu_count()}
