"""What is known of a data set's release before a byte of it is fetched."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

Assemble = Callable[[Mapping[str, Path], Path, int], None]
"""Makes a data set's folder of files by their names, in an empty folder; archives may hold so many bytes at most."""


class File(NamedTuple):
    """One file of a release.

    Attributes:
      name: its name on this machine and at mirrors.
      size: its bytes, of which its server may send twice as many where `exact` is False.
      urls: where it is, the best first: http, https, or `hf://` for the Hugging Face hub (`from_hub`).
      checksum: `sha256:` or `md5:` and hexadecimal digits; empty where none is known.
      exact: whether the file has `size` to the byte, where nothing else is known of it.
    """

    name: str
    size: int
    urls: tuple[str, ...]
    checksum: str = ""
    exact: bool = False


class Release(NamedTuple):
    """A data set as one can fetch it.

    Attributes:
      data_set: the name in `DATASETS` that finds it.
      folder: the folder that is made of it, below the one that is given as `--dir`.
      licence: its terms, or that none are stated; by whom it was made.
      files: what is fetched.
      unpacked: about how many bytes its folder has.
      images: how many images there are; 0 where nobody has counted.
      assemble: makes the folder of the files.
      tree: `fdgjax.utils.checksums.tree_sha256` of the images; empty where it is not known. It holds for archives that
        a server makes anew for everyone who asks.
      remark: what else one should know.
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

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in self.files)

    @property
    def most(self) -> int:
        """The bytes that an archive may hold at most, so that none fills the disk."""
        return 2 * max(self.size, self.unpacked)

    @property
    def pinned(self) -> str:
        """By what its bytes are known here."""
        if self.tree:
            return "sha256 of the images"
        kinds = {file.checksum.partition(":")[0] for file in self.files}
        return " and ".join(sorted(kind or "nothing" for kind in kinds))


def amount(size: int) -> str:
    """Bytes in words: `1.3 GB`, `55.3 MB`, `4,542 bytes`."""
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size:,} bytes"
