"""What the run's folder keeps of a tracker: which of its runs this is."""

import json
from pathlib import Path
from typing import Any

from fdgjax.utils.files import write_json


def id_file(folder: Path, tracker: str) -> Path:
    """The file."""
    return folder / f"{tracker}.json"


def read_id(folder: Path, tracker: str) -> dict[str, Any]:
    """What was noted; empty where nothing was."""
    file = id_file(folder, tracker)
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def write_id(folder: Path, tracker: str, **content: Any) -> None:
    """Notes it, on the disk when this returns."""
    write_json(id_file(folder, tracker), content)
