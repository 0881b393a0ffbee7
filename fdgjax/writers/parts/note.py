"""What the run's folder keeps of a tracker: which of its runs this is."""

import json
from pathlib import Path
from typing import Any

from fdgjax.files import write_json


def note_of(folder: Path, tracker: str) -> Path:
    """The file."""
    return folder / f"{tracker}.json"


def read_note(folder: Path, tracker: str) -> dict[str, Any]:
    """What was noted; empty where nothing was."""
    file = note_of(folder, tracker)
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def write_note(folder: Path, tracker: str, **content: Any) -> None:
    """Notes it, on the disk when this returns."""
    write_json(note_of(folder, tracker), content)
