"""Cells of one round or few, and a file that lists some."""

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from fdgjax.config import to_plain
from fdgjax.sweeps.cells import Cell
from fdgjax.sweeps.work import Sweep
from tests.runs import small

SPEC = """
from ml_collections import ConfigDict
from fdgjax.config import Config, to_plain
from fdgjax.models import MODELS, Backbone
from fdgjax.sweeps.cells import Cell
from tests.runs import Perceptron, small

MODELS.setdefault("perceptron", Backbone(Perceptron, "of the tests"))


def cells(scale):
    many = dict(rounds=ROUNDS, checkpoint_every=3, eval_every=7, data={"target": "r0"})
    configs = [ConfigDict(to_plain(small("CACHE", seed=seed, **many))) for seed in range(3)]
    return [Cell(f"seed{config.seed}", config, group="all") for config in configs]
"""


def spec_file(folder: Path, cache: Path, rounds: int = 4) -> Path:
    path = folder / "spec.py"
    path.write_text(SPEC.replace("CACHE", str(cache)).replace("ROUNDS", str(rounds)))
    path.with_suffix(".csv").write_text(
        "# remark\nname,figure,mean,deviation,table\nall,ood_accuracy,50.0,0.5,Table 1\n"
    )
    return path


def cell(cache: Path, name: str, **changes: Any) -> Cell:
    return Cell(name, ConfigDict(to_plain(small(cache, **changes))))


def sweep(cells: list[Cell], out: Path) -> Sweep:
    return Sweep(cells, cells, out, {})


def tables(out: Path) -> tuple[str, str]:
    return (out / "table.md").read_text(), (out / "table.csv").read_text()
