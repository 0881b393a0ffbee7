"""The runs that are tortured, and the result that each must have in the end."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.run.records import TIMINGS
from fdgjax.utils.checksums import read_checked_json
from tests.torture.processes import run, trains

METHODS = ("fedavg", "hfedf", "fdse", "uap", "fedgala", "scaffold")
"""One server model, a hypernetwork, personal parts, a labelled server, no labels, state of clients."""
SMALL: Mapping[str, tuple[str, ...]] = {
    "fedgala": ("--config.model.width=0.05", "--config.probe.epochs=2", "--config.probe.repeats=1"),
}
ROUNDS = 6


class Tortured(NamedTuple):
    """A method's run in a folder, with decoded data in another."""

    method: str
    folder: Path
    cache: Path

    @property
    def workdir(self) -> Path:
        """The run's folder."""
        return self.folder / "run"

    @property
    def arguments(self) -> list[str]:
        """Of the command line."""
        return [
            f"--config=configs/{self.method}.py",
            f"--workdir={self.workdir}",
            f"--config.data.cache_dir={self.cache}",
            *(f"--config.rounds={ROUNDS}", "--config.local_epochs=1", "--config.checkpoint_every=1"),
            *("--config.eval_every=2", *SMALL.get(self.method, ())),
        ]

    def train(self, **limit: float) -> Any:
        """Trains, or goes on, in a process of its own; see `processes.run`."""
        return run(trains(self.arguments), self.folder / "log.txt", **limit)


def result_of(workdir: Path, state: bool = True) -> dict[str, Any]:
    """What a finished run must have in common with every other of its experiment, without time and memory; with or
    without its state."""
    summary = read_checked_json(workdir / "summary.json")
    return {
        "config": read_checked_json(workdir / "config.json")["config"] | {"data": None},
        "summary": {key: value for key, value in summary.items() if key not in TIMINGS},
        "metrics": (workdir / "metrics.jsonl").read_text(),
        **({"state": state_of(workdir)} if state else {}),
    }


def state_of(workdir: Path) -> str:
    """A digest of the newest checkpoint's arrays, computed in a process of its own, as this one never starts JAX."""
    out = workdir.parent / "digest.txt"

    def work() -> int:
        import jax
        import orbax.checkpoint as ocp

        # Orbax reads a state on as many devices as it was saved on.
        jax.config.update("jax_num_cpu_devices", read_checked_json(workdir / "config.json")["config"]["devices"])
        newest = max((p for p in (workdir / "checkpoints").iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))
        tree = ocp.StandardCheckpointer().restore((newest / "state").absolute())
        digest = hashlib.sha256()
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            digest.update(jax.tree_util.keystr(path).encode() + np.asarray(leaf).tobytes())
        out.write_text(json.dumps(digest.hexdigest()))
        return 0

    ended = run(work, workdir.parent / "digest.log")
    if ended.status:
        raise RuntimeError(ended.text)
    found: str = json.loads(out.read_text())
    return found
