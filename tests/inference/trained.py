"""A trained run and files of its images, for tests of what is made from it."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdgjax.run.console import Console
from fdgjax.run.reopen import reopen
from fdgjax.run.runner import run_config
from tests.runs import never, small


@pytest.fixture(scope="module")
def trained(cache: Path, tmp_path_factory: pytest.TempPathFactory, perceptron: None) -> Path:
    """A run of LG-FedAvg, whose clients have models of their own, and several for an unseen domain."""
    path = tmp_path_factory.mktemp("trained") / "run"
    run_config(small(cache, "lgfedavg", rounds=2), path, Console(), never())
    return path


@pytest.fixture
def files(trained: Path, tmp_path: Path) -> list[Path]:
    images = reopen(trained).experiment.data.inputs
    found = [tmp_path / f"{i}.png" for i in (0, 700)]
    for file, i in zip(found, (0, 700), strict=True):
        Image.fromarray(np.asarray(images[i])[..., 0]).save(file)
    return found


def table(text: str) -> np.ndarray:
    return np.array([[float(cell) for cell in row[2:]] for row in list(csv.reader(text.splitlines()))[1:]])
