"""What earlier versions wrote, and is still read."""

import zlib
from pathlib import Path

from fdgjax.utils.checksums import CHECKSUMS


def write_earlier_checksums(folder: Path) -> None:
    """`checksums.txt` of small files as it was before SHA-256: `<CRC-32 of the CRC-32> <bytes> <path>`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    lines = "".join(f"{crc32_twice(path)} {path.stat().st_size} {path.relative_to(folder)}\n" for path in files)
    (folder / CHECKSUMS).write_text(f"{lines}{zlib.crc32(lines.encode()):08x}\n")


def crc32_twice(path: Path) -> str:
    """Of a file of one block, of at most 16 MiB; an empty file has none."""
    content = path.read_bytes()
    return f"{zlib.crc32(zlib.crc32(content).to_bytes(4) if content else b''):08x}"
