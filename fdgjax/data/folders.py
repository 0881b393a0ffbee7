"""Data sets kept as folders of images, `<domain>/<class>/*.jpg`: PACS, VLCS, DomainNet and others, and users' own."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fdgjax.data.source import Example, Source, fingerprint, read_bytes
from fdgjax.errors import LISTED, UserError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


class ImageFile(NamedTuple):
    """One image file with the indices of its class and domain."""

    path: Path
    label: int
    domain: int


class Layout(NamedTuple):
    """The folders of a data set; see `folder_data`."""

    folder: str
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    class_count: int
    spellings: Mapping[str, str]
    only: bool
    get_it_from: str

    @property
    def words(self) -> str:
        """The layout in words, for error messages."""
        return f"{self.folder + '/' if self.folder else ''}<domain>/<class>/*.jpg"

    def inside(self, path: Path) -> dict[str, Path]:
        """The folders in `path` by their names, in the spelling used here; hidden ones are skipped.

        Raises:
          UserError: two folders are spellings of one name.
        """
        with os.scandir(path) as entries:
            names = [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
        found: dict[str, Path] = {}
        for own, name in sorted((self.spellings.get(name, name), name) for name in names):
            if own in found:
                raise UserError(f"folders {found[own].name} and {name} in {path} are both '{own}': keep one of them")
            found[own] = path / name
        return found


def folder_data(
    *,
    folder: str = "",
    domains: tuple[str, ...] = (),
    classes: tuple[str, ...] = (),
    class_count: int = 0,
    spellings: Mapping[str, str] = MappingProxyType({}),
    only: bool = False,
    get_it_from: str = "",
) -> Callable[[str], Source]:
    """A data set of image folders; with the names of one data set this is its registry entry.

    Args:
      folder: the name of the data set's own folder; `data_dir` may be that folder or the one that holds it.
      domains: the domain folders in the data set's usual order; empty: all folders, sorted.
      classes: the class folders in the order of the labels; empty: all folders, sorted.
      class_count: the required number of classes where `classes` is empty; 0: any number.
      spellings: names that releases give to any of these folders, and the name used here.
      only: whether a domain may hold other classes too, which are skipped.
      get_it_from: a sentence for users who do not have the data.

    Returns:
      A function from `data_dir` to the `Source` found there. It raises `UserError` where the folder, a domain
      or a class is missing, or a domain holds no image at all; a class without images in some domain is fine.
      Names that begin with a dot and files that are not JPEG or PNG by their suffix are skipped.
    """
    return partial(_find, Layout(folder, domains, classes, class_count, spellings, only, get_it_from))


def _find(layout: Layout, data_dir: str) -> Source:
    root = _root(data_dir, layout)
    found = layout.inside(root)
    domains = layout.domains or tuple(found)
    if not domains:
        raise UserError(f"no domain folders in {root}: expected <domain>/<class>/*.jpg below data_dir")
    held = {domain: _classes_of(root, domain, domains, layout) for domain in domains}
    classes = layout.classes or tuple(sorted({name for names in held.values() for name in names}))
    _check_count(root, classes, layout)
    for domain in domains:
        _check_classes(found[domain], held[domain], classes, layout.only)
    files = [
        ImageFile(path, label, index)
        for index, domain in enumerate(domains)
        for label, name in enumerate(classes)
        for path in _images(held[domain][name])
    ]
    _check_domains([found[domain] for domain in domains], files)
    return Source(
        domain_names=domains,
        class_names=classes,
        channels=3,
        native_size=0,
        samples=len(files),
        fingerprint=fingerprint(root, (file.path for file in files), domains, classes),
        description=f"image files below {root}",
        examples=partial(_examples, root, files),
    )


def _examples(root: Path, files: Sequence[ImageFile]) -> Iterator[Example]:
    for path, label, domain in files:
        name = os.fsencode(path).decode(errors="replace")  # a record holds valid UTF-8 only
        yield Example(read_bytes(path), label, domain, name)


def _root(data_dir: str, layout: Layout) -> Path:
    if not data_dir:
        raise UserError(
            f"data_dir is empty: set it (config.data.dir) to the folder that holds {layout.words}. "
            f"{layout.get_it_from}".strip()
        )
    base = Path(data_dir).expanduser().absolute()
    if not base.is_dir():
        raise UserError(
            f"no folder {base}: data_dir (config.data.dir) must be the one that holds {layout.words}. "
            f"{layout.get_it_from}".strip()
        )
    tried = [base]
    if layout.folder:
        tried.insert(0, layout.inside(base).get(layout.folder, base / layout.folder))
    for root in tried:
        if root.is_dir() and (not layout.domains or layout.inside(root).keys() & set(layout.domains)):
            return root
    looked = " or ".join(str(root) for root in tried)
    raise UserError(
        f"no folder {', '.join(layout.domains)} in {looked}: "
        f"data_dir (config.data.dir) must hold {layout.words}. {layout.get_it_from}".strip()
    )


def _images(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        names = sorted(
            e.name
            for e in entries
            if e.name.lower().endswith(IMAGE_SUFFIXES) and not e.name.startswith(".") and e.is_file()
        )
    return [path / name for name in names]


def _classes_of(root: Path, domain: str, domains: tuple[str, ...], layout: Layout) -> dict[str, Path]:
    found = layout.inside(root)
    if domain not in found:
        raise UserError(f"no folder '{domain}' in {root}: expected {', '.join(domains)}. {layout.get_it_from}".strip())
    return layout.inside(found[domain])


def _check_count(root: Path, classes: tuple[str, ...], layout: Layout) -> None:
    if layout.class_count not in (0, len(classes)):
        raise UserError(
            f"{len(classes)} different class folders in the domains of {root}: expected {layout.class_count}; "
            f"the release is incomplete or something else lies there. {layout.get_it_from}".strip()
        )


def _check_classes(path: Path, held: Mapping[str, Path], classes: tuple[str, ...], only: bool) -> None:
    missing = [name for name in classes if name not in held]
    surplus = [name for name in held if name not in classes]
    if missing:
        raise UserError(
            f"no class folder {_few(missing)} in {path}: every domain needs all of the "
            f"{len(classes)} classes; add the folder (it may be empty)"
        )
    if surplus and not only:
        raise UserError(
            f"surplus class folder {_few(surplus)} in {path}: expected {_few(classes)}; "
            "move it away or use the data set 'folder', which takes any classes"
        )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _check_domains(paths: Sequence[Path], files: Sequence[ImageFile]) -> None:
    filled = {file.domain for file in files}
    empty = [path for index, path in enumerate(paths) if index not in filled]
    if empty:
        raise UserError(
            f"no images in {empty[0]}: expected <class>/*{', *'.join(IMAGE_SUFFIXES)} files there; "
            "add them or remove the folder"
        )
