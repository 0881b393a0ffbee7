"""Who takes part, and who is installed."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.jobs import Job
from fdgjax.utils.processor import cores
from fdgjax.utils.registry import lookup


class Peer(NamedTuple):
    """One contender.

    job: how its measurement differs from the run's common settings.
    module: what it cannot do without; '' for nothing beyond this package.
    environment: the folder with an environment of its own, and the requirements of that name beside this file; '' for
      none, as its versions agree with ours.
    does: what is done otherwise than in `torch`, in a few words.
    alone: whether it computes in its own way whatever `job.dtype` and `job.precision` are.
    """

    job: Mapping[str, Any]
    module: str = ""
    environment: str = ""
    does: str = ""
    alone: bool = False


PEERS: Mapping[str, Peer] = {
    "map": Peer({"client_axis": "map"}, does="ours, one compiled program"),
    "devices": Peer({"client_axis": "map", "devices": cores()}, does="ours, a device for each core"),
    "flax": Peer({"kind": "flax"}, does="nn.Conv, one compiled step at a time", alone=True),
    "torch": Peer({"kind": "torch"}, "torch", does="eager, channels last, fused Adam"),
    "torch.compile": Peer({"kind": "torch_compiled"}, "torch", does="the network compiled"),
    "flgo": Peer({"kind": "flgo"}, "flgo", "flgo", "its loop, DataLoader, Adam", alone=True),
    "flower": Peer({"kind": "flower"}, "flwr", "flower", "Ray's simulation, a process for each core"),
    "fedjax": Peer({"kind": "fedjax"}, "fedjax", "fedjax", "nn.Conv, its jit backend", alone=True),
}


def interpreter(peer: Peer, environments: Path) -> str:
    """The Python that measures a contender: that of its own environment if there is one, else this one."""
    own = environments / peer.environment / "bin" / "python"
    # Not resolved: a link in an environment's folder is what makes it one.
    return str(own.absolute()) if peer.environment and own.exists() else sys.executable


def installed(module: str, python: str) -> bool:
    """Whether that Python finds a module; it is not imported."""
    if not module:
        return True
    program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", program], capture_output=True).returncode == 0


def jobs_of(names: Iterable[str], base: Job, environments: Path) -> tuple[dict[str, Job], list[str]]:
    """The jobs of those that can run here, and a line for each that cannot.

    Raises:
      UserError: an unknown contender.
    """
    jobs, absent = {}, []
    for name in names:
        peer = lookup("contender", name, PEERS)
        python = interpreter(peer, environments)
        if peer.alone and (base.dtype, base.precision) != ("float32", "default"):
            absent.append(f"{name}: left out, as it has no {base.dtype} in precision {base.precision}")
        elif installed(peer.module, python):
            jobs[name] = base._replace(**peer.job, python=python)
        else:
            absent.append(f"{name}: not installed; {how_to_install(peer, environments)}")
    return jobs, absent


def how_to_install(peer: Peer, environments: Path) -> str:
    """The command that adds a contender."""
    if not peer.environment:
        return f"pip install {peer.module}"
    folder = environments / peer.environment
    requirements = f"benchmarks/peers/{peer.environment}.txt"
    return f"python -m venv {folder} && {folder}/bin/pip install -r {requirements}"
