"""Installing a data set: fetched, verified, unpacked into a temporary folder, checked, given checksums, and renamed."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from pooch import file_hash

from fdgjax.data.download.http import download
from fdgjax.data.download.release import File, Release, amount
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import find_data
from fdgjax.data.sources.tables import TableOptions
from fdgjax.utils.checksums import CHECKSUMS, sha256, tree_sha256, verify, write_checksums
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import lock, make_folder, sync, write_text

RECORD = "fetched.txt"
UNFINISHED = "unfinished"


def verified_already(release: Release, base: Path) -> str:
    """What a folder holds of a data set and how far it was verified, in words; empty if nothing is there.

    Raises:
      UserError: a data set that is damaged or incomplete.
    """
    folder = base / release.folder
    if not folder.exists():
        with contextlib.suppress(UserError):  # its loader also knows the names that other releases have
            return f"{found_images(release, base)}, in a folder of another name; not verified further"
        return ""
    try:
        images = found_images(release, base)
        if (folder / CHECKSUMS).exists():
            verify(folder)
            return f"{images}, every byte as it was when it was fetched"
        if release.tree and tree_sha256(folder) == release.tree:
            return f"{images}, every byte as it was released"
    except UserError as error:
        raise UserError(
            f"{folder} is not the data set ({error}); expected nothing there, or all of it: move it away, and "
            "repeat the command"
        ) from error
    return f"{images}, put there by other means; not verified further"


def found_images(release: Release, folder: Path) -> str:
    """What the loader finds in a folder, in words, with the expected number of samples if that differs. Of tables the
    rows are counted.

    Raises:
      UserError: it is not the data set.
    """
    source = find_data(release.data_set, data_dir=str(folder), table=TableOptions(label=release.label, missing=("?",)))
    samples = len(source.labels) if isinstance(source, Domains) else source.samples
    other = f" (expected {release.images:,})" if release.images not in (0, samples) else ""
    return f"{samples:,} {release.samples}{other} in {len(source.domain_names)} domains"


@contextlib.contextmanager
def download_folder(downloads: Path) -> Iterator[Path]:
    """Makes a folder and locks it against other processes; yields an empty folder in it, which is removed at the end.

    Raises:
      UserError: another process is fetching the same.
    """
    make_folder(downloads)
    work = downloads / UNFINISHED
    with lock(downloads / "lock") as mine:
        if not mine:
            raise UserError(
                f"another process is fetching into {downloads}; expected one at a time: wait for it, and repeat "
                "the command, which then verifies what it fetched"
            )
        try:
            shutil.rmtree(work, ignore_errors=True)  # what a killed process left
            work.mkdir()
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def get(release: Release, base: Path, work: Path, mirror: str, keep: bool) -> str:
    """Fetches a data set that is not there yet into the folder `base`; returns what the loader finds in it, in words.

    Args:
      work: the empty folder that `download_folder` yields, on the same disk as `base`; the archives are stored beside
        it.
      mirror: base address of a mirror that has all files by name; empty for the release's own servers.
      keep: whether to keep the archives.

    Raises:
      UserError: too little space, servers that fail, files or images with another checksum, archives that are refused.
    """
    downloads, folder = work.parent, base / release.folder
    check_release_space(release, downloads)
    known = list(pinned(release, downloads / RECORD))
    files = {file.name: fetched(file, downloads / file.name, mirror, work) for file in known}
    sums = {file.name: known_sha256(file) or sha256(files[file.name]) for file in known}
    write_text(downloads / RECORD, "".join(f"{name} {checksum}\n" for name, checksum in sums.items()))
    print(f"unpacking into {folder}", flush=True)
    unpacked = work / release.folder
    unpacked.mkdir()
    release.assemble(files, unpacked, release.most)
    done = found_images(release, unpacked)
    got = write_checksums(unpacked, many=True)
    if release.tree and got != release.tree:
        raise UserError(
            f"the {release.files_are} of {release.folder} have the sha256 {got}; expected {release.tree}: the release "
            f"has changed, or the server has something else: remove what is in {downloads}, and try another --mirror"
        )
    os.rename(unpacked, folder)
    sync(base)
    if not keep:
        for name in files:
            (downloads / name).unlink(missing_ok=True)
    return done


def check_release_space(release: Release, downloads: Path) -> None:
    """Raises a `UserError` if the disk has too little space for the missing files and what is unpacked."""
    paths = [downloads / file.name for file in release.files]
    here = sum(path.stat().st_size for path in paths if path.exists())
    needed = max(release.size - here, 0) + release.unpacked
    if needed > (free := shutil.disk_usage(downloads).free):
        raise UserError(
            f"{release.folder} needs {amount(needed)} and {downloads} has {amount(free)} free; expected enough space: "
            "free some, or give another --dir"
        )


def pinned(release: Release, record: Path) -> Iterator[File]:
    """The files of a release; a file without a known checksum gets the one that an earlier download recorded."""
    lines = record.read_text().splitlines() if record.exists() else []
    before = {name: checksum for name, _, checksum in (line.partition(" ") for line in lines)}
    for file in release.files:
        if file.checksum:
            yield file
        elif release.tree or file.name not in before:
            print(f"no checksum of {file.name} is known: the one it has is written to {record}", flush=True)
            yield file
        else:
            print(f"no checksum of {file.name} is known: the one in {record} must be its own, unless you remove that")
            yield file._replace(checksum=f"sha256:{before[file.name]}")


def known_sha256(file: File) -> str:
    """A file's SHA-256 if it is known, else nothing."""
    kind, _, checksum = file.checksum.partition(":")
    return checksum if kind == "sha256" else ""


def fetched(file: File, path: Path, mirror: str, work: Path) -> Path:
    """The path of a file, which is fetched unless it is there already.

    Raises:
      UserError: no server has it, or the file that is there has another checksum.
    """
    if not path.exists():
        file = file._replace(urls=(f"{mirror.rstrip('/')}/{quote(file.name)}",)) if mirror else file
        print(f"fetching {file.name} ({amount(file.size)}) from {file.urls[0]}", flush=True)
        return download(file, path, work)
    print(f"{file.name} is here", flush=True)
    kind, _, wanted = file.checksum.partition(":")
    if wanted and (got := file_hash(path, kind)) != wanted:
        raise UserError(f"{path} has the {kind} {got}; expected {wanted}: remove it, and repeat the command")
    return path
