"""Images on disk: how preparation, start, rounds and memory grow with their number, beside FLGo on the same files.

python -m benchmarks.streams --images 2000 20000 100000 --environments /path/to/environments

JPEGs of six domains, one of them unseen, are generated below `--folder` and stay there. Clients have about 170 images,
six of them train in a round, so that a round is the same work whatever the number of images: AlexNet at 224 pixels,
three minibatches of 50 at each client, Adam. Memory at its peak, ours without the pages of mapped files.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.jobs import ROOT, Job, Result, launch
from benchmarks.models import CLASSES
from benchmarks.options import close, common_options, record_path
from benchmarks.peers.contenders import PEERS, installed, interpreter
from benchmarks.tables import markdown, mebibytes, spelled
from fdgjax.utils.command import command, positive_number
from fdgjax.utils.files import write_json
from fdgjax.utils.process_memory import anonymous_bytes
from fdgjax.utils.registry import lookup

DOMAINS, PIXELS = 6, 224
PER_CLIENT, PARTICIPANTS, BATCH, STEPS = 170, 6, 50, 3
DIFFERENT = 600
"""Number of different images; the others are links to them. They are smooth, so that a file has a photograph's size."""


@command
def main(argv: Sequence[str]) -> int:
    """Measures and prints."""
    options = common_options(__doc__.splitlines()[0])
    add = options.add_argument
    add("--images", type=positive_number, nargs="+", default=[2000, 20_000, 100_000], help="JPEGs, 2,000 or more")
    add("--contenders", nargs="+", default=list(CONTENDERS), help=", ".join(CONTENDERS))
    add("--folder", type=Path, default=Path("runs", "streams"), help="where images, caches and runs go")
    add("--environments", type=Path, default=Path("runs", "peers"), help="folder of the environments by name")
    chosen = options.parse_args(argv)
    path = record_path("streams", time.strftime("%Y%m%d-%H%M%S"), chosen)
    measurements: list[Result] = []
    for images in chosen.images:
        folder = jpegs(chosen.folder / f"{images}", images)
        for name in chosen.contenders:
            result = lookup("contender", name, CONTENDERS)(folder, images, chosen)
            measurements.append({"contender": name, "images": images, **result})
            write_json(path, {"benchmark": "streams", "measurements": measurements})
            print(f"{images} images  {name:8s} {json.dumps(result)}", flush=True)
    close(measurements, table(measurements), path)
    return 0


def jpegs(folder: Path, images: int) -> Path:
    """The folder of generated images, `domain/class/number.jpg`, made unless it is there."""
    if folder.exists():
        return folder
    rng, unfinished = np.random.default_rng(0), folder.with_name(f".{folder.name}-unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    places = [(f"domain_{d}", f"class_{c}") for d in range(DOMAINS) for c in range(CLASSES)]
    for place in places:
        unfinished.joinpath(*place).mkdir(parents=True)
    first: list[Path] = []
    for number in range(images):
        target = unfinished.joinpath(*places[number % len(places)], f"{number}.jpg")
        if number < DIFFERENT:
            coarse = rng.integers(0, 256, (16, 16, 3), np.uint8)
            Image.fromarray(coarse).resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(target, quality=90)
            first.append(target)
        else:
            os.link(first[number % DIFFERENT], target)
    unfinished.rename(folder)
    return folder


def number_of_clients(images: int) -> int:
    """Those that share the images of all domains but the unseen one, as many of each domain, so that all have as many
    minibatches."""
    each = images // DOMAINS / PER_CLIENT
    return max(1, round(each)) * (DOMAINS - 1)


def ours(folder: Path, images: int, chosen: Any, streaming: bool) -> Result:
    """A run of fdgjax that decodes the images into a new cache, then the one that counts; both are stopped before their
    last round, so that nothing of what follows a run is in the figures."""
    runs = folder.with_name(f"{folder.name}-{'streamed' if streaming else 'in_memory'}")
    cache = runs.with_name(f"{runs.name}-cache")
    for old in (runs, cache):
        shutil.rmtree(old, ignore_errors=True)
    words = [sys.executable, "-m", "fdgjax.main", *arguments(folder, cache, images, chosen.rounds + 2, streaming)]
    times = []
    for name, rounds in (("first", 1), ("again", 1 + chosen.rounds)):
        begin = time.perf_counter()
        with subprocess.Popen(
            [*words, f"--workdir={runs / name}"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as run:
            ends, memory = round_ends(run, runs / name / "metrics.jsonl", rounds)
            status = run.poll()
            run.kill()
            said = run.communicate()[1].strip().splitlines()
        if len(ends) < rounds:
            return {"failed": f"exit status {status}: {(said or ['no message'])[-1]}"}
        times.append([end - begin for end in ends])
    (first,), again = times
    each = float(np.median(np.diff(again)))
    return {
        "prepare_seconds": first - again[0],
        "start_seconds": again[0] - each,
        "seconds_per_round": each,
        "peak_bytes": memory,
    }


def round_ends(run: subprocess.Popen[str], records: Path, rounds: int) -> tuple[list[float], int]:
    """When the lines of the first rounds were written, fewer if the run ended before; and the most memory until then
    without the pages of mapped files, as seen fifty times a second."""
    ends, memory = list[float](), 0
    while len(ends) < rounds and run.poll() is None:
        with contextlib.suppress(OSError, StopIteration):  # it has just ended
            memory = max(memory, anonymous_bytes(run.pid))
        lines = records.read_text().count("\n") if records.exists() else 0
        ends += [time.perf_counter()] * min(lines - len(ends), rounds - len(ends))
        time.sleep(0.02)
    return ends, memory


def arguments(folder: Path, cache: Path, images: int, rounds: int, streaming: bool) -> list[str]:
    """The command line of such a run."""
    keys: Mapping[str, object] = {
        "data.dir": folder.absolute(),
        "data.cache_dir": cache.absolute(),
        "data.target": f"domain_{DOMAINS - 1}",
        "data.image_size": PIXELS,
        "data.clients": number_of_clients(images),
        "data.validation": 0.05,
        "data.streaming": streaming,
        "clients_per_round": PARTICIPANTS,
        "model.name": "alexnet",
        "batch_size": BATCH,
        "drop_last": True,
        "local_epochs": 1,
        "rounds": rounds,
        "eval_every": 1000,
        "checkpoint_every": 1000,
        "writers": "",
    }
    return ["--config=fedavg:folder", *(f"--config.{key}={value}" for key, value in keys.items())]


def flgo(folder: Path, images: int, chosen: Any) -> Result:
    """FLGo, whose DataLoader decodes the same files each time that they are used."""
    python = interpreter(PEERS["flgo"], chosen.environments)
    if not installed("flgo", python):
        return {"skipped": "FLGo is not installed; see docs/performance.md"}
    job = Job(
        "flgo",
        "alexnet",
        clients=number_of_clients(images),
        batch_size=BATCH,
        steps=STEPS,
        rounds=chosen.rounds,
        per_round=PARTICIPANTS,
        image_size=PIXELS,
        folder=str(folder.absolute()),
        python=python,
    )
    begin = time.perf_counter()
    result = launch(job, chosen.timeout_seconds)
    seconds = time.perf_counter() - begin
    if "failed" in result:
        return result
    each = float(np.median(result["seconds_per_round"]))
    training = sum(result["seconds_per_round"]) + result["compile_seconds"]
    return {
        "start_seconds": seconds - training,
        "seconds_per_round": each,
        "peak_bytes": result["peak_bytes"],
        "framework": result["framework"],
    }


CONTENDERS: Mapping[str, Callable[[Path, int, Any], Result]] = {
    "streamed": lambda folder, images, chosen: ours(folder, images, chosen, True),
    "memory": lambda folder, images, chosen: ours(folder, images, chosen, False),
    "flgo": flgo,
}
"""Ours with images on disk, ours with all of them in memory, and FLGo."""


def table(measurements: Sequence[Result]) -> str:
    """One row for each number of images and contender."""
    header = ["images", "contender", "prepare s, once", "start s", "s per round", "MiB"]
    seconds = "{:.1f}".format
    rows = [
        [
            f"{m['images']:,}",
            m["contender"],
            spelled(m.get("prepare_seconds"), seconds),
            spelled(m.get("start_seconds"), seconds),
            spelled(m.get("seconds_per_round"), seconds),
            spelled(m.get("peak_bytes"), mebibytes),
        ]
        for m in measurements
    ]
    return markdown(header, rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
