"""Folders with checksums of all their bytes, so that damage of a single bit is noticed.

`checksums.txt` has a line for each file, `<checksum> <bytes> <path>`, and in the last line the checksum of those
before it. A file's checksum is the CRC-32 of the CRC-32s of its blocks of 16 MiB, which several threads compute; it
differs after any change within 32 successive bits, and after any other with probability 1 - 2^-32.
"""

import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from fdgjax.files import Damaged, sync, write_text

CHECKSUMS = "checksums.txt"
BLOCK = 2**24
PIECE = 2**20
"""Bytes of a block that are read at once: few enough to stay in a processor's cache."""

THREADS = min(8, os.cpu_count() or 1)


def seal(folder: Path, many: bool = False) -> None:
    """Puts all files and folders below `folder` on the disk, and then `checksums.txt`: where that is, they are.

    With `many` files it is the whole disk at once: to wait for each takes milliseconds, for hundreds of thousands half
    an hour.
    """
    if many:
        os.sync()
    else:
        for path in (*folder.rglob("*"), folder):
            sync(path)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    body = "".join(f"{checksum(path)} {path.stat().st_size} {path.relative_to(folder).as_posix()}\n" for path in files)
    write_text(folder / CHECKSUMS, f"{body}{zlib.crc32(body.encode()):08x}\n")


def verified(folder: Path) -> Path:
    """The folder, every byte of whose files is as it was when it was sealed; files added since are not looked at.

    Raises:
      Damaged: a file is missing, cannot be read or is another.
    """
    for line in _lines(folder):
        wanted, size, name = line.split(" ", 2)
        try:
            found = os.stat(folder / name).st_size
            if found != int(size):
                raise Damaged(f"{name} has {found:,} bytes instead of {int(size):,}")
            if checksum(folder / name) != wanted:
                raise Damaged(f"{name} differs from its checksum")
        except OSError as error:
            raise Damaged(f"{name}: {error.strerror}") from error
    return folder


def _lines(folder: Path) -> list[str]:
    """The lines of `checksums.txt` but for the last, with which they agree."""
    try:
        *lines, last, end = (folder / CHECKSUMS).read_bytes().split(b"\n")
    except OSError as error:
        raise Damaged(f"{CHECKSUMS}: {error.strerror}") from error
    except ValueError as error:
        raise Damaged(f"{CHECKSUMS} is cut short") from error
    body = b"".join(line + b"\n" for line in lines)
    if last != b"%08x" % zlib.crc32(body) or end:
        raise Damaged(f"{CHECKSUMS} differs from its own checksum")
    return [line.decode() for line in lines]


def checksum(path: Path) -> str:
    """8 hexadecimal digits of all bytes of a file."""
    with path.open("rb", buffering=0) as file:
        starts = range(0, os.fstat(file.fileno()).st_size, BLOCK)
        of_block = partial(_of_block, file.fileno())
        if len(starts) > 1:
            with ThreadPoolExecutor(THREADS) as pool:
                blocks = list(pool.map(of_block, starts))
        else:
            blocks = list(map(of_block, starts))
    return f"{zlib.crc32(b''.join(block.to_bytes(4) for block in blocks)):08x}"


def _of_block(file: int, start: int) -> int:
    found = 0
    for offset in range(start, start + BLOCK, PIECE):
        found = zlib.crc32(os.pread(file, PIECE, offset), found)
    return found
