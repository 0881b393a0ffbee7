"""One measurement is a job, run in a process of its own, so that thread pools, memory peaks and compiled programs of
one contender do not touch another's."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fdgjax.utils import huge_pages

ROOT = Path(__file__).resolve().parents[1]
Result = dict[str, Any]


class Job(NamedTuple):
    """What a child process measures.

    kind: entry of `benchmarks.child.KINDS`.
    model: entry of `benchmarks.models.MODELS`; network: `ours`, or `naive` for its twin on XLA's own layers.
    method: entry of `fdgjax.methods.METHODS`, with its defaults.
    client_axis, chunk, devices: see `fdgjax.engine.Execution`; no devices are those that a run has by default.
    plan: entry of `fdgjax.nn.lowerings.PLANS` for every convolution of our network; `auto` picks by platform.
    clients, batch_size, steps: a round is `steps` minibatches at each client; rounds: number of timed rounds.
    sizes: each client's number of images instead, whose last minibatch may be smaller.
    per_round: participants of a round, drawn anew for each; 0 for all clients.
    precision: any value of `jax.default_matmul_precision`; dtype: as `config.dtype`.
    folder: where images are JPEGs, `domain/class/*.jpg`, instead of random ones; only for FLGo.
    clock: entry of `benchmarks.timing.CLOCKS`; python: the interpreter, '' for this one.
    """

    kind: str
    model: str = "inception"
    network: str = "ours"
    method: str = "fedavg"
    client_axis: str = "auto"
    chunk: int = 8
    devices: int = 1
    plan: str = "auto"
    clients: int = 3
    batch_size: int = 64
    steps: int = 10
    rounds: int = 3
    sizes: Sequence[int] = ()
    per_round: int = 0
    image_size: int = 32
    precision: str = "default"
    dtype: str = "float32"
    folder: str = ""
    clock: str = "wall"
    python: str = ""

    @property
    def images_per_round(self) -> int:
        """Training images one round goes through, on average."""
        return sum(self.images) * self.participants // len(self.images)

    @property
    def participants(self) -> int:
        """The clients that take part in a round."""
        return self.per_round or len(self.images)

    @property
    def images(self) -> Sequence[int]:
        """Training images of each client."""
        return self.sizes or [self.batch_size * self.steps] * self.clients


def launch(job: Job, timeout_seconds: float) -> Result:
    """The child's result; a result with `failed` (one line) where it has none. Ours begins as our commands do."""
    command = [job.python or sys.executable, "-m", "benchmarks.child", json.dumps(job._asdict())]
    try:
        environment = os.environ | (huge_pages.environment() if job.kind == "engine" else {})
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_seconds
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"longer than {timeout_seconds:g} s; lower --steps, or raise --timeout_seconds"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return {"failed": f"exit status {done.returncode}: {lines[-1]}"}
    return json.loads(done.stdout.splitlines()[-1])


def alternate(jobs: Mapping[str, Job], repeats: int, timeout_seconds: float) -> Iterator[tuple[int, str, Result]]:
    """`(repeat, name, result)` of every job, `repeats` times, one after another.

    Each repeat starts with another job, so that none always follows the same one. A job without result is not tried
    again.
    """
    names, hopeless = list(jobs), set[str]()
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            if name in hopeless:
                continue
            result = launch(jobs[name], timeout_seconds)
            if "failed" in result or "skipped" in result:
                hopeless.add(name)
            yield repeat, name, result


def measurement(repeat: int, name: str, job: Job, result: Result) -> Result:
    """One line of the JSON record."""
    return {"contender": name, "repeat": repeat, "job": job._asdict(), **result}
