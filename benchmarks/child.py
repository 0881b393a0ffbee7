"""The child process: `python -m benchmarks.child JOB`, a job as JSON; its result as JSON is the last line printed."""

import json
import pkgutil
import sys
from collections.abc import Mapping

from benchmarks.jobs import Job
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup

KINDS: Mapping[str, str] = {
    "engine": "benchmarks.engine_round:measure",
    "torch": "benchmarks.torch_round:measure",
    "torch_compiled": "benchmarks.torch_round:measure_compiled",
    "matmul": "benchmarks.ceiling:measure",
    "flax": "benchmarks.peers.flax_round:measure",
    "fedjax": "benchmarks.peers.fedjax_round:measure",
    "flgo": "benchmarks.peers.flgo_round:measure",
    "flower": "benchmarks.peers.flower_round:measure",
}
"""By name and not imported here, since no process needs both JAX and PyTorch."""


def main(text: str) -> int:
    """Measures one job."""
    job = read_job(text)
    try:
        measure = pkgutil.resolve_name(lookup("kind of measurement", job.kind, KINDS))
        print(json.dumps(measure(job)))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def read_job(text: str) -> Job:
    """The job that was written as JSON, which knows no tuples: a job is a key."""
    job = Job(**json.loads(text))
    return job._replace(sizes=tuple(job.sizes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
