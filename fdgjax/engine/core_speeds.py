"""How a CPU's cores work together: measured once on a machine, and kept in the user's cache folder."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax

from fdgjax.data.sources.cache import cache_root
from fdgjax.utils.files import write_json
from fdgjax.utils.processor import cores, processor_name
from fdgjax.utils.threads import VARIABLES

PROBE = Path(__file__).with_name("core_probe.py")
SECONDS = 60


class CoreSpeeds(NamedTuple):
    """Speeds of a CPU split into devices, in units of a device on a core of its own while all cores are busy.

    alone: the speed of a single device, whose operations all cores share; from 1 to the number of cores.
    sharing: the slowdown if there are more devices than cores, which take turns and evict each other's caches; from 1.
    """

    alone: float
    sharing: float


def usual_speeds(processors: int) -> CoreSpeeds:
    """The middle of `extreme_speeds`."""
    return CoreSpeeds(alone=processors**0.5, sharing=1.1)


def extreme_speeds(processors: int) -> list[CoreSpeeds]:
    """Speeds between which those of most machines and networks are: on two cores, networks had 1.2 to 1.7 and .9 to
    1.2, of which a choice of devices adds 5 % itself."""
    return [CoreSpeeds(alone, sharing) for alone in (1.0, processors**0.7) for sharing in (1.0, 1.15)]


def core_speeds() -> CoreSpeeds:
    """This machine's speeds: those in the cache, else measured, which takes about two seconds, and kept; the usual ones
    as long as the machine is busy."""
    processors = cores()
    if processors == 1 or jax.config.values["jax_platforms"] not in (None, "", "cpu"):
        return usual_speeds(processors)
    path, machine = cache_root("") / "cores.json", f"{processor_name()}, {processors} cores, jax {jax.__version__}"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return CoreSpeeds(**json.loads(path.read_text())[machine])
    try:
        one, all_cores, one_more = measured(processors)
    except (OSError, ValueError, subprocess.SubprocessError):
        return usual_speeds(processors)
    found = CoreSpeeds(
        alone=min(max(1.0, one / all_cores * processors), float(processors)), sharing=max(1.0, all_cores / one_more)
    )
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {machine: found._asdict()})
    return found


def measured(processors: int) -> list[float]:
    """What `core_probe.py` prints. Runs it in a process of its own, on the CPU alone and with the default threads."""
    environment = {name: value for name, value in os.environ.items() if name not in (*VARIABLES, "XLA_FLAGS")}
    done = subprocess.run(
        [sys.executable, "-P", str(PROBE), str(processors)],
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    return list(json.loads(done.stdout))
