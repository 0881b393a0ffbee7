"""The cache of decoded data sets on disk: written once and atomically, then verified and memory-mapped.

Layout, below the cache folder (`$XDG_CACHE_HOME/fdgjax`, else `~/.cache/fdgjax`):

    <name>-<version>-<fingerprint>/records/   TFDS's array_record files, shared by all sizes
    <name>-<version>-<fingerprint>/32px/      images.npy, labels.npy, domains.npy and names.json

Both folders have checksums of all their bytes. The whole cache may be deleted at any time. No pickle is loaded
from it.
"""

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from fdgjax.data.sources.array_files import DAMAGED
from fdgjax.data.sources.domains import Domains
from fdgjax.utils.checksums import Damaged, verify, write_checksums
from fdgjax.utils.errors import UserError, printable
from fdgjax.utils.files import sync

Content = TypeVar("Content")

UNFINISHED = ".unfinished-"
ABANDONED_SECONDS = 24 * 3600.0


def cache_root(cache_dir: str) -> Path:
    """The folder for decoded data: `cache_dir`, or the user's own cache folder if that is empty.

    Raises:
      UserError: a name that is not UTF-8, which the record writers do not accept, or that contains a null character.
    """
    if "\0" in cache_dir or cache_dir != cache_dir.encode(errors="ignore").decode():
        raise UserError(f"cache_dir got '{cache_dir}'; expected the name of a folder in UTF-8; choose another")
    if cache_dir:
        return Path(cache_dir).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path in the variable is invalid and to be ignored.
    return (Path(base) if os.path.isabs(base) else home() / ".cache") / "fdgjax"


def home() -> Path:
    """The user's home folder; raises a `UserError` if the system knows none."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise UserError(
            "there is no HOME for decoded data; expected a folder in config.data.cache_dir, HOME or XDG_CACHE_HOME"
        ) from error


@contextlib.contextmanager
def publishing(final: Path) -> Iterator[Path]:
    """A folder to write in, which becomes `final` at the end of the block, complete or not at all.

    Its checksums are written and everything is flushed to disk before it is renamed: a power cut leaves nothing half
    written. After an exception nothing of it remains. If another process has published `final` in the meantime, that
    folder is kept.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=final.parent) as folder:
        # A subfolder, since only the owner can read the temporary folder itself.
        work = Path(folder) / final.name
        work.mkdir()
        yield work
        write_checksums(work)
        try:
            os.replace(work, final)
        except OSError:
            if not final.is_dir():
                raise
        for parent in (final.parent, final.parent.parent):
            sync(parent)


def read_cached(folder: Path, read: Callable[[Path], Content]) -> Content | None:
    """The result of `read` for a published folder.

    Returns:
      None if there is no such folder, or if `read` raises `Damaged`, which is logged, and the folder removed.

    Raises:
      UserError: a damaged folder that cannot be removed.
    """
    if not folder.is_dir():
        return None
    try:
        return read(folder)
    except Damaged as damage:
        logging.getLogger("fdgjax").warning(
            "the cache %s is damaged (%s): it is made again", printable(folder), printable(damage)
        )
    try:
        remove_damaged(folder, read)
    except OSError as error:
        raise UserError(
            f"the cache {folder} is damaged and cannot be removed ({error}); expected a folder that can be; delete "
            "it, or set config.data.cache_dir"
        ) from error
    return None


def remove_damaged(folder: Path, read: Callable[[Path], object]) -> None:
    """Removes a folder for which `read` raised `Damaged`.

    Other processes may do the same at the same time, and one of them may have published a new folder by now. So the
    folder is first moved to where only this process looks; if it turns out to be undamaged there, it is moved back.
    """
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=folder.parent, ignore_cleanup_errors=True) as scratch:
        aside = Path(scratch) / folder.name
        try:
            os.rename(folder, aside)
        except FileNotFoundError:  # removed by another process
            return
        with contextlib.suppress(Damaged):
            read(aside)
            with contextlib.suppress(OSError):  # a third process has published one meanwhile
                os.rename(aside, folder)


def remove_abandoned(folder: Path) -> None:
    """Deletes what killed processes left unfinished in `folder` more than a day ago."""
    for path in folder.glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def write_arrays(
    folder: Path, shape: tuple[int, int, int, int], examples: Iterable[tuple[np.ndarray, int, int]]
) -> None:
    """Writes `images.npy`, `labels.npy` and `domains.npy`, one image in memory at a time.

    Args:
      folder: an existing folder.
      shape: the shape of all images, `[samples, height, width, channels]`.
      examples: `shape[0]` triples of an image, uint8 `shape[1:]`, its label and its domain.
    """
    labels, domains = np.empty(shape[0], np.int32), np.empty(shape[0], np.int32)
    # Not a writable memory map, which on a full disk kills the process instead of raising.
    with open(folder / "images.npy", "wb") as stream:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for row, (image, label, domain) in zip(range(shape[0]), examples, strict=True):
            stream.write(image.tobytes())
            labels[row], domains[row] = label, domain
    np.save(folder / "labels.npy", labels, allow_pickle=False)
    np.save(folder / "domains.npy", domains, allow_pickle=False)


def write_names(folder: Path, domain_names: tuple[str, ...], class_names: tuple[str, ...], origin: str) -> None:
    """Writes `names.json`: the names behind the indices, and where the images come from."""
    names = {"domain_names": domain_names, "class_names": class_names, "origin": origin}
    (folder / "names.json").write_text(json.dumps(names, indent=1), encoding="utf-8")


def read_arrays(folder: Path) -> Domains:
    """The data set in `folder`, its images memory-mapped, all arrays read-only.

    Raises:
      Damaged: the files are not what `publishing` wrote, or the arrays do not form a data set.
    """
    verify(folder)
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        labels = np.load(folder / "labels.npy", allow_pickle=False)
        domains = np.load(folder / "domains.npy", allow_pickle=False)
        names = json.loads((folder / "names.json").read_text(encoding="utf-8"))
        data = Domains(images, labels, domains, tuple(names["domain_names"]), tuple(names["class_names"]))
    except (*DAMAGED, KeyError, TypeError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error
    _check(data)
    labels.flags.writeable = domains.flags.writeable = False
    return data


def _check(data: Domains) -> None:
    """Raises `Damaged` if the arrays do not fit each other or the tables of names."""
    images = data.inputs
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != images.shape[2]:
        raise Damaged(f"images.npy has {images.dtype} {list(images.shape)}, not bytes [samples, size, size, channels]")
    for name, indices, table in (
        ("labels", data.labels, data.class_names),
        ("domains", data.domains, data.domain_names),
    ):
        if indices.dtype != np.int32 or indices.shape != images.shape[:1]:
            raise Damaged(f"{name}.npy has {indices.dtype} {list(indices.shape)} for {len(images):,} images")
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(table):
            raise Damaged(f"{name}.npy has {indices.min()} to {indices.max()} for {len(table)} names")
