"""Small archives of images, as they are released and as nobody should make them."""

import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

DOMAINS = ("amazon", "Caltech", "dslr", "webcam")
CLASSES = ("backpack", "bike", "calculator", "headphones", "keyboard")
MORE = ("laptop_computer", "monitor", "mouse", "mug", "projector")


def image(number: int, form: str = "jpeg") -> bytes:
    """An image file."""
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), (number % 256, 30, 200)).save(buffer, form)
    return buffer.getvalue()


def office(prefix: str = "Office_Caltech_DA_Dataset-main/") -> dict[str, bytes]:
    """An image of each class in each domain, with what else lies in the release."""
    places = [f"{prefix}{domain}/{name}" for domain in DOMAINS for name in CLASSES + MORE]
    images = {f"{place}/frame_{number:04d}.jpg": image(number) for number, place in enumerate(places)}
    extra = {f"{prefix}README.md": b"-", f"{prefix}amazon/.DS_Store": b"-", f"__MACOSX/{places[0]}/._frame.jpg": b"-"}
    return images | extra


def zipped(members: Mapping[str, bytes], **attributes: Any) -> bytes:
    """A zip; the attributes are those of each entry."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            for key, value in attributes.items():
                setattr(entry, key, value)
            archive.writestr(entry, content)
    return buffer.getvalue()


def tarred(members: Mapping[str, bytes], **attributes: Any) -> bytes:
    """A tar.gz; the attributes are those of each entry."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for key, value in attributes.items():
                setattr(entry, key, value)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def parquet(path: Path, rows: Sequence[tuple[Any, Any, Any]]) -> Path:
    """Rows of image, domain and label as Hugging Face writes them."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    columns: dict[str, list[Any]] = {
        "image": [{"bytes": content, "path": "pic.jpg"} for content, _, _ in rows],
        "domain": [domain for _, domain, _ in rows],
        "label": [label for _, _, label in rows],
    }
    write_table(pa.table(columns), path)
    return path
