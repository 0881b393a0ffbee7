"""The built wheel in an environment of its own and an empty folder: train, predict, export, and run what was exported.

Four minutes on two busy cores, of which the installation takes most.
"""

import csv
import json
import math
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fdgjax.data.sources.loading import load_data

ROOT = Path(__file__).resolve().parents[1]
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
ALONE = """
import sys, numpy as np, jax
program = jax.export.deserialize(bytearray(open("taken/program.bin", "rb").read()))
np.save("alone.npy", program.call(np.load("images.npy")))
assert not [name for name in sys.modules if name.startswith(("fdgjax", "flax"))]
"""


def done(*command: str | Path, folder: Path) -> str:
    """Standard output of a command that knows nothing of the checkout."""
    own = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "XLA_FLAGS")}
    ended = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_the_wheel_trains_predicts_and_exports_in_an_empty_folder(
    tmp_path: Path, cache: Path, shared_data: Path
) -> None:
    empty, built, home = tmp_path / "empty", tmp_path / "built", tmp_path / "environment"
    empty.mkdir()
    done(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", built, ROOT, folder=tmp_path)
    (wheel,) = built.glob("fdgjax-*.whl")
    venv.create(home, with_pip=True)
    python, fdgjax = home / "bin" / "python", home / "bin" / "fdgjax"
    done(python, *PIP, "-c", ROOT / "constraints.txt", wheel, folder=tmp_path)
    assert "train" in done(fdgjax, "--help", folder=empty)
    assert "hfedf-pacs" in " ".join(done(fdgjax, "reproduce", "--help", folder=empty).split())
    demo = done(fdgjax, "demo", f"--config.data.cache_dir={cache}", "--config.rounds=1", folder=empty)
    assert "r45 (unseen)" in demo
    assert "hfedf" in done(fdgjax, "runs", folder=empty)
    tuning = ("--config.rounds=2", "--config.eval_every=1", "--config.model.name=digits_cnn", "--workdir", "run")
    done(fdgjax, "train", "--config=fedavg", f"--config.data.cache_dir={cache}", *tuning, folder=empty)
    images = np.asarray(load_data("rotated_digits", cache_dir=str(cache)).inputs[:3])
    for i, image in enumerate(images):
        Image.fromarray(image[..., 0]).save(empty / f"{i}.png")
    np.save(empty / "images.npy", images)
    done(fdgjax, "predict", "run", "0.png", "1.png", "2.png", "--out", "predicted.csv", folder=empty)
    done(fdgjax, "export", "run", "--out", "taken", folder=empty)
    done(python, "-c", ALONE, folder=empty)
    rows = list(csv.DictReader((empty / "predicted.csv").read_text().splitlines()))
    predicted = [[float(cell) for name, cell in row.items() if name.startswith("p(")] for row in rows]
    assert any(row["set"] for row in rows)
    assert all(float(row["distance"]) > 0 for row in rows)
    np.testing.assert_allclose(np.load(empty / "alone.npy"), predicted, atol=2e-6)
    of_four_hospitals(empty, python, fdgjax, shared_data / "heart_disease")


def of_four_hospitals(folder: Path, python: Path, fdgjax: Path, hospitals: Path) -> None:
    """Four hospitals' tables: three train, and the fourth, whose file the program has not seen, is predicted."""
    keys = (f"--config.data.dir={hospitals}", "--config.data.target=hungary", "--config.rounds=5", "--workdir=hearts")
    done(fdgjax, "train", "--config=fedavg:heart_disease", *keys, folder=folder)
    new = hospitals / "reprocessed.hungarian.data"
    done(fdgjax, "predict", "hearts", new, "--out", "hungary.csv", folder=folder)
    shutil.rmtree(folder / "taken")  # of another model, which an export never overwrites
    done(fdgjax, "export", "hearts", "--out", "taken", folder=folder)
    facts = json.loads((folder / "taken" / "model.json").read_text())
    rows = list(csv.DictReader(new.read_text().splitlines()))
    np.save(folder / "images.npy", np.array([[cell(row, column) for column in facts["columns"]] for row in rows], "f4"))
    done(python, "-c", ALONE, folder=folder)
    predicted = [float(row["p(present)"]) for row in csv.DictReader((folder / "hungary.csv").read_text().splitlines())]
    assert len(predicted) == len(rows) == 294
    np.testing.assert_allclose(
        np.load(folder / "alone.npy")[:, facts["classes"].index("present")], predicted, atol=2e-6
    )


def cell(row: Mapping[str, str], column: Mapping[str, Any]) -> float:
    """A cell as the program takes it, by the model card."""
    text, names = row[column["name"]], column["categories"]
    if text in ("?", "-9"):
        return math.nan
    return float(names.index(text) if names else text)
