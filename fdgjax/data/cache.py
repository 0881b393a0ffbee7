"""Decoded data sets on disk: written once and whole, then memory-mapped.

Layout, below the cache folder (`$XDG_CACHE_HOME/fdgjax`, else `~/.cache/fdgjax`):

    <name>-<version>-<fingerprint>/records/   TFDS's array_record files, shared by all sizes
    <name>-<version>-<fingerprint>/32px/      images.npy, labels.npy, domains.npy and names.json

All of it may be deleted at any time. Nothing in it is unpickled.
"""

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from fdgjax.data.domains import Domains
from fdgjax.errors import UserError

UNFINISHED = ".unfinished-"
ABANDONED_SECONDS = 24 * 3600.0


def cache_root(cache_dir: str) -> Path:
    """The folder for decoded data: `cache_dir`, or the user's own cache folder where that is empty."""
    if cache_dir:
        return Path(cache_dir).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path in the variable is invalid and to be ignored.
    return (Path(base) if os.path.isabs(base) else home() / ".cache") / "fdgjax"


def home() -> Path:
    """The user's home folder; a `UserError` where the system knows none."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise UserError(
            "there is no HOME for decoded data; expected a folder in config.data.cache_dir, HOME or XDG_CACHE_HOME"
        ) from error


@contextlib.contextmanager
def published(final: Path) -> Iterator[Path]:
    """A folder to write in, which becomes `final` at the end of the block, whole or not at all.

    After an exception nothing of it remains. If another process has published `final` in the meantime, that
    folder is kept.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=final.parent) as folder:
        # One level down, as the scratch folder itself is readable by its owner alone.
        work = Path(folder) / final.name
        work.mkdir()
        yield work
        try:
            os.replace(work, final)
        except OSError:
            if not final.is_dir():
                raise


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
      shape: of all the images, `[samples, height, width, channels]`.
      examples: `shape[0]` times image uint8 `shape[1:]`, label and domain.
    """
    labels, domains = np.empty(shape[0], np.int32), np.empty(shape[0], np.int32)
    # Not a writable memory map: on a full disk that ends the process instead of raising.
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
      UserError: files are missing, cut short or not what `write_arrays` wrote.
    """
    try:
        images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
        labels = np.load(folder / "labels.npy", allow_pickle=False)
        domains = np.load(folder / "domains.npy", allow_pickle=False)
        names = json.loads((folder / "names.json").read_text(encoding="utf-8"))
        if not len(images) == len(labels) == len(domains):
            raise ValueError("the arrays differ in length")
        data = Domains(images, labels, domains, tuple(names["domain_names"]), tuple(names["class_names"]))
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise UserError(f"the cached data in {folder} is damaged ({error}): delete that folder") from error
    labels.flags.writeable = domains.flags.writeable = False
    return data
