"""A run's folder knows its data."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.run.console import Console
from fdgjax.run.runner import run_config
from fdgjax.utils.errors import UserError
from tests.runs import never, perceptron, small

__all__ = ["perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron")


@pytest.mark.slow
def test_a_folder_is_not_continued_with_other_data(cache: Path, tmp_path: Path) -> None:
    """The data decide, wherever they lie: the same go on from another folder, others are neither finished nor go on."""
    inputs = np.random.default_rng(0).integers(0, 256, (2, 40, 8, 8, 1), np.uint8)
    for name, changed in (("here", 0), ("moved", 0), ("other", 1)):
        (tmp_path / name).mkdir()
        for site in (0, 1, 2):
            stored = inputs[site % 2] ^ np.uint8(changed)
            np.savez(tmp_path / name / f"site{site}.npz", inputs=stored, labels=np.arange(40) % 2)

    def trained_on(name: str, rounds: int) -> dict[str, Any]:
        config = small(cache, rounds=rounds, eval_every=1)
        data = dataclasses.replace(config.data, name="arrays", dir=str(tmp_path / name), target="site0")
        return run_config(dataclasses.replace(config, data=data), tmp_path / "run", Console(), never())

    first = trained_on("here", 1)
    assert trained_on("moved", 1) == first
    for rounds in (1, 2):
        with pytest.raises(UserError, match=r"holds a run of other data: their digest is \w{12} there and \w{12} here"):
            trained_on("other", rounds)
    assert trained_on("moved", 2)["rounds"] == 2
