"""The parts of a sweep: cells, scales, and the papers' published figures.

A spec is a Python file with `cells(scale: str) -> Sequence[Cell]`; SPEC.csv beside it holds the published figures.
"""

import ast
import csv
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from fdgjax.config import make_config
from fdgjax.config.register import of_file
from fdgjax.utils.errors import UserError, unknown, users_program
from fdgjax.utils.files import stays_inside

PACKAGE = "fdgjax.sweeps.specs"
SPECS = Path(__file__).resolve().parent / "specs"
"""The specs of the package."""


class Cell(NamedTuple):
    """One run of a sweep.

    name: its folder, unique. config: as a config file returns it. figures: keys of `summary.json` to show, with dots
    for nested keys. group: the group of cells over which figures are averaged, '' for none. reduced: what its scale
    leaves out of the paper's protocol, '' for nothing. note: known reasons for a difference from the paper.
    pretrained: whether the paper's network starts from pretrained weights, which lie in `config.model.pretrained`.
    """

    name: str
    config: ConfigDict
    figures: Sequence[str] = ("ood_accuracy",)
    group: str = ""
    reduced: str = ""
    note: str = ""
    pretrained: bool = False


class Scale(NamedTuple):
    """The part of a paper's protocol that is run.

    preset: of the config. changes: laid over it. reduced, note: see `Cell`.
    """

    preset: str
    changes: Mapping[str, Any] = MappingProxyType({})
    reduced: str = ""
    note: str = ""


class Published(NamedTuple):
    """A paper's figure in percent, its deviation if one is printed, its table, the number of the seeds that both are
    over, 0 where it is not known, and whether it is of the very images that ours is of."""

    mean: float
    deviation: float | None
    table: str
    seeds: int = 0
    same_images: bool = False


Figures = Mapping[tuple[str, str], Published]
"""Published figures by the names of a cell or group and of a figure."""


def configured(method: str, scale: Scale, /, **changes: Any) -> ConfigDict:
    """The config of a method at a scale, with a cell's own changes."""
    config = make_config(method, scale.preset)
    config.update(dict(scale.changes))
    config.update(changes)
    return config


def at_scale(
    name: str,
    method: str,
    scale: Scale,
    figures: Sequence[str] = ("ood_accuracy",),
    group: str = "",
    note: str = "",
    /,
    **changes: Any,
) -> Cell:
    """The cell of a method at a scale, with its own changes of the config; what the scale says of itself follows the
    cell's own `note`."""
    notes = "; ".join(filter(None, (note, scale.note)))
    return Cell(name, configured(method, scale, **changes), figures, group, scale.reduced, notes)


def spec_file(word: str) -> Path:
    """The spec file that a word names: the file of that path, or else the package's spec of that name.

    Raises:
      UserError: neither exists.
    """
    if Path(word).is_file():
        return Path(word)
    if word not in own_specs():
        raise unknown("SPEC, a Python file or a name,", word, own_specs())
    return SPECS / f"{word}.py"


def own_specs() -> dict[str, str]:
    """The package's specs by name, each with the first sentence of its docstring."""
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SPECS.glob("[!_]*.py"))}
    texts = {name: " ".join((ast.get_docstring(tree) or "").split()) for name, tree in trees.items()}
    return {name: text.partition(". ")[0].rstrip(".") for name, text in texts.items()}


def check_names(cells: Sequence[Cell]) -> None:
    """Raises a `UserError` if two cells have one name, whose folder they would share, or a name is none of a folder."""
    names = [cell.name for cell in cells]
    if wrong := [name for name in names if Path(name) == Path() or not stays_inside(Path(name))]:
        raise UserError(f"a run is called '{wrong[0]}'; expected the name of a folder inside of --out")
    if doubled := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UserError(f"{names.count(doubled[0])} runs are called '{doubled[0]}'; expected a name for each run")


def read_spec(path: Path, scale: str) -> list[Cell]:
    """The cells of a spec at a scale.

    Raises:
      UserError: no such file, no such function in it, or one that fails or gives something else.
    """
    expected = "cells(scale) -> list of fdgjax.sweeps.cells.Cell"
    if not path.is_file():
        raise UserError(f"SPEC got '{path}'; expected a Python file, such as fdgjax/sweeps/specs/hfedf_pacs.py")
    with users_program(f"SPEC '{path}'", expected):
        own = path.resolve().parent == SPECS
        module = import_module(f"{PACKAGE}.{path.stem}") if own else of_file(path.absolute())
        if not callable(getattr(module, "cells", None)):
            raise UserError(f"SPEC '{path}' has no function cells; expected {expected}")
        found = list(module.cells(scale))
    if other := [cell for cell in found if not isinstance(cell, Cell)]:
        raise UserError(f"SPEC '{path}' gave {other[0]!r}; expected {expected}")
    return found


def read_published(spec: Path) -> Figures:
    """The published figures beside a spec; empty if there is no such file.

    The file has the columns name (of a cell or a group), figure, mean, deviation and table, and perhaps seeds, how many
    of the paper's the two are over, and images, `same` where both sides are of the same; lines that begin with # are
    comments.

    Raises:
      UserError: a row without these, or with text instead of a number.
    """
    path = spec.with_suffix(".csv")
    if not path.exists():
        return {}
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    figures = {}
    for row in csv.DictReader(lines):
        try:
            deviation = float(row["deviation"]) if row["deviation"] else None
            figures[row["name"], row["figure"]] = Published(
                float(row["mean"]), deviation, row["table"], int(row.get("seeds") or 0), row.get("images") == "same"
            )
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{path} has the row {','.join(map(str, row.values()))}; expected name,figure,mean,deviation,table, "
                "mean and deviation (or nothing) as numbers"
            ) from None
    return figures


def as_name(word: str) -> str:
    """The word as a part of a folder's name."""
    return re.sub(r"[^\w.+=-]", "_", word.removeprefix("method."))
