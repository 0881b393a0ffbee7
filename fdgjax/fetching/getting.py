"""A data set's way to its folder: fetched, compared, unpacked beside, checked, sealed, and then given its name."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from fdgjax.data.loading import FROM_FILES
from fdgjax.data.source import Source
from fdgjax.errors import UserError
from fdgjax.fetching.release import File, Release, amount
from fdgjax.fetching.transfer import Means, digests, download, part_of, size_of
from fdgjax.files import lock, make_folder, sync
from fdgjax.sealed import CHECKSUMS, Damaged, read_checked_json, verify, write_checked_json, write_checksums

DOWNLOADS = "downloads"
RECORD = "fetched.json"
UNPACKING = "unpacking"


class Place(NamedTuple):
    """Where a data set and its downloads are.

    Attributes:
      base: the folder that is given.
      folder: the data set's, in it.
      downloads: what is fetched, and the record of what was seen.
    """

    base: Path
    folder: Path
    downloads: Path


def place_of(name: str, release: Release, base: Path) -> Place:
    """The place of a data set in a folder."""
    root = base.expanduser().absolute()
    return Place(root, root / release.folder, root / DOWNLOADS / name)


def present(release: Release, place: Place) -> str:
    """What is there already and was verified, in words; empty where there is nothing.

    Raises:
      UserError: a data set that is damaged, or is not all of this one.
    """
    if not place.folder.exists():
        with contextlib.suppress(UserError):  # its loader also knows the names that other releases have
            return f"{found(release, place.base)}, in a folder of another name; not verified further"
        return ""
    try:
        source = found(release, place.base)
        if (place.folder / CHECKSUMS).exists():
            verify(place.folder)
            return f"{source}, every byte as it was when it was fetched"
        if release.tree and tree_checksum(place.folder) == release.tree:
            return f"{source}, every byte as it was released"
    except UserError as error:
        raise UserError(
            f"{place.folder} is not the data set ({error}); expected nothing there, or all of it: move it away, and "
            "repeat the command"
        ) from error
    return f"{source}, put there by other means; not verified further"


def found(release: Release, folder: Path) -> str:
    """What the loader finds in a folder, in words; its `UserError` where that is not the data set."""
    return counted(release, FROM_FILES[release.data_set](str(folder)))


def counted(release: Release, source: Source) -> str:
    """Images and domains in words, beside the number that is expected where that differs."""
    other = f" (expected {release.images:,})" if release.images not in (0, source.samples) else ""
    return f"{source.samples:,} images{other} in {len(source.domain_names)} domains"


@contextlib.contextmanager
def alone(place: Place) -> Iterator[None]:
    """Makes the place, and holds it against other processes.

    Raises:
      UserError: another process is fetching the same.
    """
    make_folder(place.downloads)
    with lock(place.downloads / "lock") as mine:
        if not mine:
            raise UserError(
                f"another process is fetching into {place.downloads}; expected one at a time: wait for it, and repeat "
                "the command, which then verifies what it fetched"
            )
        yield


def get(release: Release, place: Place, mirror: str, keep: bool, means: Means) -> str:
    """Fetches a data set that is not there, in a place that this process holds; returns what it is, in words.

    Args:
      mirror: an address below which all files are, by their names; empty for the release's own servers.
      keep: whether the archives stay.

    Raises:
      UserError: too little space, servers that fail, files that differ from what is known, archives that are refused.
    """
    check_space(release, place)
    files = {file.name: fetched(file, place, mirror, means) for file in release.files}
    record(release, place, files, means)
    means.say(f"unpacking into {place.folder}")
    unpacked = place.downloads / UNPACKING
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    try:
        release.assemble(files, unpacked, release.bounds)
        done = found(release, unpacked)
        check_tree(release, unpacked)
        write_checksums(unpacked, many=True)
        os.rename(unpacked, place.folder)
        sync(place.base)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    if not keep:
        for path in files.values():
            path.unlink()
    return done


def check_space(release: Release, place: Place) -> None:
    """Raises a `UserError` where the disk has too little space for what is missing."""
    paths = [place.downloads / file.name for file in release.files]
    here = sum(max(size_of(path), size_of(part_of(path))) for path in paths)
    needed = max(release.size - here, 0) + release.unpacked
    if needed > (free := shutil.disk_usage(place.downloads).free):
        raise UserError(
            f"{release.folder} needs {amount(needed)} and {place.base} has {amount(free)} free; expected enough space: "
            "free some, or give another --dir"
        )


def fetched(file: File, place: Place, mirror: str, means: Means) -> Path:
    """The path of a file that is here, fetched before or now."""
    path = place.downloads / file.name
    if path.exists():
        means.say(f"{file.name} is here")
        return path
    urls = (f"{mirror.rstrip('/')}/{quote(file.name)}",) if mirror else file.urls
    means.say(f"fetching {file.name} ({amount(file.size)}) from {urls[0]}")
    download(file, urls, path, means)
    return path


def record(release: Release, place: Place, files: Mapping[str, Path], means: Means) -> None:
    """Compares the files with what is known of them and with the record of an earlier download, and writes the record.

    Raises:
      UserError: a file that differs.
    """
    path = place.downloads / RECORD
    before = earlier(path)
    seen: dict[str, Any] = {}
    for file in release.files:
        kind, _, wanted = file.checksum.partition(":")
        sums = digests(files[file.name], "sha256", *([kind] if kind else []))
        if wanted and sums[kind] != wanted:
            raise UserError(
                f"{files[file.name]} has the {kind} {sums[kind]}; expected {wanted}: remove it, and repeat the command"
            )
        known = before.get(file.name, {}).get("sha256", sums["sha256"])
        if known != sums["sha256"] and not wanted and not release.tree:
            raise UserError(
                f"{files[file.name]} has the sha256 {sums['sha256']}; expected {known} as in an earlier download: the "
                f"release has changed, or one of them is damaged; remove {path} to take it"
            )
        if not wanted:
            means.say(f"no checksum of {file.name} is known: the one it has is written to {path}")
        seen[file.name] = {"bytes": size_of(files[file.name]), "sha256": sums["sha256"], "known": bool(wanted)}
    write_checked_json(path, {"data_set": release.data_set, "licence": release.licence, "files": seen})


def earlier(path: Path) -> Mapping[str, Any]:
    """The files of an earlier download's record; empty without one.

    Raises:
      UserError: a damaged record.
    """
    try:
        return dict(read_checked_json(path)["files"]) if path.exists() else {}
    except (Damaged, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged; expected the record of a download: remove it, and repeat") from error


def check_tree(release: Release, folder: Path) -> None:
    """Raises a `UserError` where the images are not those of the release."""
    if release.tree and (got := tree_checksum(folder)) != release.tree:
        raise UserError(
            f"the images of {release.folder} have the sha256 {got}; expected {release.tree}: the release has changed, "
            f"or the server has something else: remove what is in {folder.parent}, and try another --mirror"
        )


def tree_checksum(folder: Path) -> str:
    """The SHA-256 of the lines that `sha256sum` prints for all files, in the order of their paths' bytes."""
    paths = sorted((path.relative_to(folder).as_posix().encode(), path) for path in folder.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for name, path in paths:
        if name != CHECKSUMS.encode():
            digest.update(digests(path, "sha256")["sha256"].encode() + b"  " + name + b"\n")
    return digest.hexdigest()
