"""Command-line options and the measuring loop of the benchmarks of rounds."""

import argparse
import importlib.util
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.jobs import Job, Result, alternate, measurement
from benchmarks.models import MODELS
from benchmarks.tables import check_free, complaints
from benchmarks.timing import CLOCKS
from fdgjax.nn.lowerings import PLANS
from fdgjax.utils.command import positive_number
from fdgjax.utils.files import write_json
from fdgjax.utils.registry import lookup

PRECISIONS = ("default", "float32", "tensorfloat32", "bfloat16")
CEILING = "matmul"
"""A reference measurement, not a contender: the ceiling of which the others reach a share."""


def parser(description: str) -> argparse.ArgumentParser:
    """The options of the benchmarks of rounds of one network."""
    options = common_options(description)
    add = options.add_argument
    add("--batch_size", type=positive_number, help="images per minibatch; default by model, see benchmarks/models.py")
    add("--image_size", type=positive_number, help="height and width of the images; default by model")
    add("--repeats", type=positive_number, default=3, help="how often all contenders are measured in turn")
    add("--plans", nargs="+", default=["auto"], metavar="PLAN", help=f"auto, {', '.join(PLANS)}: our convolutions")
    add("--precision", choices=PRECISIONS, default="default", help="jax.default_matmul_precision")
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the computation in the model")
    add("--clock", choices=tuple(CLOCKS), default="wall", help="what a round's seconds are; cpu: of one pinned core")
    return options


def common_options(description: str) -> argparse.ArgumentParser:
    """The options of all benchmarks that keep a record."""
    options = argparse.ArgumentParser(description=description, allow_abbrev=False)
    add = options.add_argument
    add("--rounds", type=positive_number, default=3, help="rounds timed in each measurement, after one that is not")
    add("--timeout_seconds", type=positive_number, default=1800, help="for one measurement")
    add("--json", type=Path, help="where the record goes; default runs/benchmarks/NAME-TIME.json")
    return options


def base_job(options: argparse.Namespace, model: str) -> Job:
    """What all jobs of a run on one model have in common.

    Raises:
      UserError: an unknown model.
    """
    about = lookup("model", model, MODELS)
    given = {name: value for name, value in vars(options).items() if name in Job._fields and value is not None}
    sizes = {"image_size": about.image_size, "batch_size": about.batch_size}
    return Job(kind="engine", **(sizes | given | {"model": model}))


def planned(jobs: Mapping[str, Job], plans: Sequence[str]) -> dict[str, Job]:
    """Every job on our network once for each plan, the others once.

    Raises:
      UserError: an unknown plan.
    """
    for plan in plans:
        lookup("convolution plan", plan, {"auto": None, **PLANS})
    ours = {name: job.kind == "engine" and job.network == "ours" for name, job in jobs.items()}
    return {
        name if plan == "auto" else f"{name}/{plan}": job._replace(plan=plan)
        for name, job in jobs.items()
        for plan in (plans if ours[name] else ["auto"])
    }


def without_torch(jobs: Mapping[str, Job]) -> dict[str, Job]:
    """The jobs that can run here; prints a note if PyTorch is missing."""
    if importlib.util.find_spec("torch") or not any(job.kind == "torch" for job in jobs.values()):
        return dict(jobs)
    print("PyTorch is not importable: its rows are skipped; `pip install torch` adds them", flush=True)
    return {name: job for name, job in jobs.items() if job.kind != "torch"}


def run(name: str, options: argparse.Namespace, jobs: Mapping[str, Job]) -> tuple[list[Result], Path]:
    """Measures all jobs in turn, with progress; the record is written anew after each measurement.

    Returns:
      The measurements, and where their record is.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = record_path(name, stamp, options)
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    record: dict[str, Any] = {"benchmark": name, "began": stamp, "settings": settings, "measurements": []}
    for repeat, contender, result in alternate(jobs, options.repeats, options.timeout_seconds):
        record["measurements"].append(measurement(repeat, contender, jobs[contender], result))
        write_json(path, record)
        print(f"repeat {repeat + 1}/{options.repeats}  {contender:20s} {in_words(result)}", flush=True)
    return record["measurements"], path


def record_path(name: str, stamp: str, options: argparse.Namespace) -> Path:
    """Where the record goes, which must not exist yet; its folder is made.

    Raises:
      UserError: it exists.
    """
    path: Path = options.json or Path("runs", "benchmarks", f"{name}-{stamp}.json")
    check_free(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def in_words(result: Result) -> str:
    """One measurement in a few words."""
    if "matmul_flops_per_second" in result:
        return f"{result['matmul_flops_per_second'] / 1e9:,.0f} GFLOP/s"
    word = next((word for word in ("failed", "skipped") if word in result), None)
    return f"{word}: {result[word]}" if word else f"{result['images_per_second']:,.1f} images/s"


def setting(measurements: Sequence[Result]) -> str:
    """The machine and versions of the measurements, in one line."""
    facts = {
        key: m[key]
        for m in measurements
        for key in ("device", "backend", "cores", "jax", "torch", "threads")
        if key in m
    }
    return ", ".join(f"{key} {value}" for key, value in facts.items())


def close(measurements: Sequence[Result], table: str, path: Path) -> None:
    """Prints the table and the measurements without figures."""
    print("", setting(measurements), "", table, "", *complaints(measurements), f"record in {path}", sep="\n")
