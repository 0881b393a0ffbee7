"""Files written so that a kill at any moment leaves them whole."""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all: written beside, then renamed."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """All records as JSON lines, replacing the file in one step."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """One more JSON line."""
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    # Not the process id: containers on other machines that write here can have the same one.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    beside.write_text(text)
    os.replace(beside, path)
