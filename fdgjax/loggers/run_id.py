"""The id of a run in an experiment tracker, kept in the run's folder."""

import json
from pathlib import Path
from typing import Any

from fdgjax.utils.files import write_json


def id_file(folder: Path, tracker: str) -> Path:
    """The file that holds the id."""
    return folder / f"{tracker}.json"


def read_id(folder: Path, tracker: str) -> dict[str, Any]:
    """What `write_id` wrote; empty if there is no file."""
    file = id_file(folder, tracker)
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def write_id(folder: Path, tracker: str, **content: Any) -> None:
    """Writes the id and related facts, flushed to disk when this returns."""
    write_json(id_file(folder, tracker), content)
