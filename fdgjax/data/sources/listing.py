"""The contents of a folder: folders, images, and anything else."""

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fdgjax.utils.checksums import CHECKSUMS
from fdgjax.utils.errors import LISTED, UserError, example_of, printable

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")

UNREAD_SUFFIXES = (".heic", ".heif", ".avif", ".jxl", ".jp2", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".svg", ".dcm")
"""Suffixes of images that are not read: phones, cameras and scanners write them."""

SYSTEM = frozenset(
    {"__MACOSX", "Thumbs.db", "desktop.ini", "$RECYCLE.BIN", "System Volume Information", "lost+found", "@eaDir"}
)
"""What operating systems and archives leave in folders, besides names that begin with a dot."""


class Listing(NamedTuple):
    """The sorted contents of one folder.

    images: files with one of `IMAGE_SUFFIXES`. hidden: names that begin with a dot or are in `SYSTEM`. others: files
    that are not images. broken: links to nothing, circular links, and links to a folder that contains them.
    """

    folders: list[Path]
    images: list[Path]
    hidden: list[Path]
    others: list[Path]
    broken: list[Path]


def list_folder(path: Path) -> Listing:
    """The contents of `path` without the file of checksums that `fdgjax data` writes beside the images.

    Raises:
      UserError: a folder that cannot be read.
    """
    found = Listing([], [], [], [], [])
    try:
        with os.scandir(path) as entries:
            for entry in sorted((entry for entry in entries if entry.name != CHECKSUMS), key=lambda entry: entry.name):
                getattr(found, _kind(path, entry)).append(path / entry.name)
    except OSError as error:
        raise unreadable(path, error) from error
    return found


def list_whole(path: Path) -> Listing:
    """The contents of `path`, which must not have broken links.

    Raises:
      UserError: a folder that cannot be read, or has a broken link.
    """
    found = list_folder(path)
    if found.broken:
        raise UserError(
            f"{found.broken[0]} is a link that leads nowhere, or back to a folder that holds it; "
            "expected files and folders: repair the link or remove it"
        )
    return found


def by_domain(files: Sequence[Path]) -> dict[str, Path]:
    """Files by their names without the suffix, which are those of domains; raises a `UserError` for two of one name."""
    found: dict[str, Path] = {}
    for path in files:
        if path.stem in found:
            raise UserError(f"{found[path.stem]} and {path} are files of one domain; expected one file for each")
        found[path.stem] = path
    return found


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; raises a `UserError` if that cannot be determined."""
    try:
        return path.is_dir()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> UserError:
    """The error for a folder that cannot be read."""
    return UserError(f"cannot read the folder {path} ({error.strerror}): repair it or move it away")


def suffixes(paths: Sequence[Path]) -> str:
    """How many files have which suffix, in lower case, the most frequent first: `.heic 12, .txt 1`."""
    counted = Counter(path.suffix.lower() or "no suffix" for path in paths)
    return printable(", ".join(f"{suffix} {number:,}" for suffix, number in counted.most_common(LISTED)))


def say_skipped(root: Path, skipped: Mapping[str, Sequence[Path]], lost: bool) -> None:
    """Logs one line with the number and an example of each kind of paths skipped below `root`, if any.

    Args:
      root: the data set's folder.
      skipped: the paths by kind, in words.
      lost: whether images may be among them, which makes the line a warning.
    """
    parts = [
        f"{kind}: {len(paths):,} ({example_of([path.relative_to(root) for path in paths])})"
        for kind, paths in skipped.items()
        if paths
    ]
    if parts:
        level = logging.WARNING if lost else logging.INFO
        logging.getLogger("fdgjax").log(level, "skipped in %s: %s", printable(root), "; ".join(parts))


def _kind(path: Path, entry: os.DirEntry[str]) -> str:
    """The field of `Listing` to which an entry of `path` belongs."""
    if entry.name.startswith(".") or entry.name in SYSTEM:
        return "hidden"
    try:
        folder, file = entry.is_dir(), entry.is_file()
    except OSError:  # a circular link
        return "broken"
    if entry.is_symlink() and (_holds(path, entry.path) if folder else not file):
        return "broken"
    if folder:
        return "folders"
    return "images" if file and entry.name.lower().endswith(IMAGE_SUFFIXES) else "others"


def _holds(path: Path, link: str) -> bool:
    """Whether a link in the folder `path` leads to that folder or to one of its parents."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(link))
