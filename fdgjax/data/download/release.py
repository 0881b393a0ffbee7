"""Descriptions of data sets' releases, known before anything is fetched."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

Assemble = Callable[[Mapping[str, Path], Path, int], None]
"""`(files by name, empty folder, most) -> None`: writes the data set into the folder; an archive may unpack to at most
`most` bytes."""


class File(NamedTuple):
    """One file of a release.

    Attributes:
      name: its local name and its name at mirrors.
      size: its number of bytes; unless `exact`, an estimate, and the server may send up to twice as many.
      urls: its addresses, the preferred one first: http, https, or `hf://` for the Hugging Face hub (`from_hub`).
      checksum: `sha256:` or `md5:` and hexadecimal digits; empty if unknown.
      exact: whether the file has exactly `size` bytes, for files without a known checksum.
    """

    name: str
    size: int
    urls: tuple[str, ...]
    checksum: str = ""
    exact: bool = False


class Release(NamedTuple):
    """A published version of a data set that can be fetched.

    Attributes:
      data_set: the entry of `DATASETS` that loads it.
      folder: the folder that it is unpacked into, below `--dir`.
      licence: its terms, or that none are stated, and its authors.
      files: the files to fetch.
      unpacked: approximate size of the folder in bytes.
      images: number of images, or of rows of tables; 0 if unknown.
      assemble: makes the folder from the files.
      tree: `fdgjax.utils.checksums.tree_sha256` of the images or tables; empty if unknown. It also verifies archives
        that a server generates anew for each download.
      remark: further information.
      label: the column of the labels if the folder holds tables, `<domain>.csv`; empty for images.
    """

    data_set: str
    folder: str
    licence: str
    files: tuple[File, ...]
    unpacked: int
    images: int
    assemble: Assemble
    tree: str = ""
    remark: str = ""
    label: str = ""

    @property
    def samples(self) -> str:
        """What its samples are, in words."""
        return "rows" if self.label else "images"

    @property
    def files_are(self) -> str:
        """What its folder holds, in words."""
        return "tables" if self.label else "images"

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in self.files)

    @property
    def most(self) -> int:
        """The maximum number of bytes that an archive may unpack to, so that it cannot fill the disk."""
        return 2 * max(self.size, self.unpacked)

    @property
    def pinned(self) -> str:
        """What the fetched data is verified by, in words."""
        if self.tree:
            return f"sha256 of the {self.files_are}"
        kinds = {file.checksum.partition(":")[0] for file in self.files}
        return " and ".join(sorted(kind or "nothing" for kind in kinds))


def amount(size: int) -> str:
    """Bytes in words: `1.3 GB`, `55.3 MB`, `4,542 bytes`."""
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size:,} bytes"
