"""A round of FedAvg: our engine and layers beside XLA's own convolution and PyTorch, alternated.

python -m benchmarks.round
python -m benchmarks.round --sizes 1638 1875 3143 --contenders auto map cores more torch
python -m benchmarks.round --contenders vmap --plans library im2col --precision tensorfloat32      (on a GPU)
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.jobs import Job, Result
from benchmarks.options import CEILING, base_job, close, parser, planned, run, without_torch
from benchmarks.tables import COSTS, costs, markdown, median, paired_ratio, series, spelled
from fdgjax.utils.command import command, positive_number
from fdgjax.utils.processor import cores
from fdgjax.utils.registry import lookup

CONTENDERS: Mapping[str, dict[str, Any]] = {
    "auto": {"client_axis": "map", "devices": 0},
    "cores": {"client_axis": "map", "devices": cores()},
    "map": {"client_axis": "map"},
    "bfloat16": {"client_axis": "map", "devices": cores(), "dtype": "bfloat16"},
    "torch": {"kind": "torch"},
    "autocast": {"kind": "torch", "dtype": "bfloat16"},
    "more": {"client_axis": "map", "devices": cores() + 1},
    "vmap": {"client_axis": "vmap"},
    "chunk": {"client_axis": "chunk"},
    "naive": {"client_axis": "vmap", "network": "naive"},
}
"""How each differs from the run's common settings: `auto` has as many devices as a run of these clients by default,
`cores` one for each of a CPU's cores, `more` one more, `map` a single one."""

USUAL = ("auto", "cores", "map", "bfloat16", "torch", "autocast")
"""The contenders unless others are named."""

REFERENCES = ("torch", "autocast", "naive")
"""Contenders with which all others are compared, if they were measured."""


@command
def main(argv: Sequence[str]) -> int:
    """Measures and prints."""
    options = parser(__doc__.splitlines()[0])
    add = options.add_argument
    add("--clients", type=positive_number, default=3)
    add("--steps", type=positive_number, default=20, help="minibatches per client and round")
    add("--sizes", type=positive_number, nargs="+", metavar="N", help="instead: each client's number of images")
    add("--naive_steps", type=positive_number, default=1, help="the same for `naive`, tens of times slower on a CPU")
    add("--chunk", type=positive_number, default=2, help="clients at a time for `chunk`")
    add("--models", nargs="+", default=["inception"], help="entries of benchmarks.models.MODELS")
    add("--contenders", nargs="+", default=list(USUAL), help=", ".join(CONTENDERS))
    chosen = options.parse_args(argv)
    jobs = without_torch(contenders(chosen))
    ceiling = Job("matmul", precision=chosen.precision, dtype=chosen.dtype)
    measurements, path = run("round", chosen, {CEILING: ceiling, **jobs})
    close(measurements, table(measurements, chosen.models), path)
    return 0


def contenders(chosen: Any) -> dict[str, Job]:
    """The jobs by name, `model map` or `model vmap/im2col`.

    Raises:
      UserError: an unknown contender, model or plan.
    """
    jobs = {}
    for model in chosen.models:
        for name in chosen.contenders:
            job = base_job(chosen, model)._replace(**lookup("contender", name, CONTENDERS))
            jobs[f"{model} {name}"] = job._replace(steps=chosen.naive_steps if name == "naive" else job.steps)
    return planned(jobs, chosen.plans)


def table(measurements: Sequence[Result], models: Sequence[str]) -> str:
    """One row per contender: medians over repeats, and ratios taken within each repeat."""
    names = dict.fromkeys(m["contender"] for m in measurements if m["contender"] != CEILING)
    references = [r for r in REFERENCES if any(f"{model} {r}" in names for model in models)]
    header = ["contender", "images/s", *(f"vs {r}" for r in references), "of matmul", *COSTS]
    ceiling = series(measurements, CEILING, "matmul_flops_per_second")
    rows = []
    for name in sorted(names, key=lambda name: models.index(name.split()[0])):
        model = name.split()[0]
        speed = series(measurements, name, "images_per_second")
        versus = [paired_ratio(speed, series(measurements, f"{model} {r}", "images_per_second")) for r in references]
        flops = work(measurements, model)
        share = paired_ratio({k: v * flops for k, v in speed.items()}, ceiling) if flops else None
        rows.append(
            [
                name,
                spelled(median(speed), "{:,.1f}".format),
                *(spelled(ratio, "{:.2f}x".format) for ratio in versus),
                spelled(share, "{:.1%}".format),
                *costs(measurements, name),
            ]
        )
    top = spelled(median(ceiling), lambda rate: f"{rate / 1e9:,.0f}")
    work_each = ", ".join(f"{m} {spelled(work(measurements, m), lambda f: f'{f / 1e6:,.0f}')}" for m in models)
    return f"{markdown(header, rows)}\n\nmatmul {top} GFLOP/s; MFLOP per training image: {work_each}"


def work(measurements: Sequence[Result], model: str) -> float | None:
    """Operations per training image, which only the JAX processes count."""
    mine = (m for m in measurements if m["job"]["model"] == model)
    return next((m["flops_per_image"] for m in mine if "flops_per_image" in m), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
