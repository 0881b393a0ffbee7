"""Data sets kept as folders of images, `<domain>/<class>/*.jpg`: PACS, VLCS, Office-Home and users' own."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fdgjax.data.source import Example, Source, fingerprint, read_bytes
from fdgjax.errors import UserError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


class ImageFile(NamedTuple):
    """One image file with the indices of its class and domain."""

    path: Path
    label: int
    domain: int


def folder_data(
    *,
    folder: str = "",
    domains: tuple[str, ...] = (),
    classes: tuple[str, ...] = (),
    get_it_from: str = "",
) -> Callable[[str], Source]:
    """A data set of image folders; with the names of one data set this is its registry entry.

    Args:
      folder: the name of the data set's own folder; `data_dir` may be that folder or the one that holds it.
      domains: the domain folders in the data set's usual order; empty: whatever folders there are, sorted.
      classes: the class folders in the order of the labels; empty: whatever folders there are, sorted.
      get_it_from: a sentence for users who do not have the data.

    Returns:
      A function from `data_dir` to the `Source` found there. It raises `UserError` where the folder, a domain
      or a class is missing, or a domain holds no image at all; a class without images in some domain is fine.
      Names that begin with a dot and files that are not JPEG or PNG by their suffix are passed over.
    """
    return partial(_find, folder=folder, domains=domains, classes=classes, get_it_from=get_it_from)


def _find(
    data_dir: str, *, folder: str, domains: tuple[str, ...], classes: tuple[str, ...], get_it_from: str
) -> Source:
    root = _root(data_dir, folder, domains, get_it_from)
    domains = domains or _subfolders(root)
    if not domains:
        raise UserError(f"no domain folders in {root}: expected <domain>/<class>/*.jpg below data_dir")
    held = {domain: _classes_of(root, domain, domains, get_it_from) for domain in domains}
    classes = classes or tuple(sorted({name for names in held.values() for name in names}))
    for domain in domains:
        _check_classes(root, domain, held, classes)
    files = [
        ImageFile(path, label, index)
        for index, domain in enumerate(domains)
        for label, name in enumerate(classes)
        for path in _images(root / domain / name)
    ]
    _check_domains(root, domains, files)
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


def _root(data_dir: str, folder: str, domains: tuple[str, ...], get_it_from: str) -> Path:
    layout = f"{folder + '/' if folder else ''}<domain>/<class>/*.jpg"
    if not data_dir:
        raise UserError(
            f"data_dir is empty: set it (config.data.dir) to the folder that holds {layout}. {get_it_from}".strip()
        )
    base = Path(data_dir).expanduser().absolute()
    if not base.is_dir():
        raise UserError(
            f"no folder {base}: data_dir (config.data.dir) must be the one that holds {layout}. {get_it_from}".strip()
        )
    tried = (base / folder, base) if folder else (base,)
    for root in tried:
        if not domains or any((root / domain).is_dir() for domain in domains):
            return root
    looked = " or ".join(str(root) for root in tried)
    raise UserError(
        f"no folder {', '.join(domains)} in {looked}: "
        f"data_dir (config.data.dir) must hold {layout}. {get_it_from}".strip()
    )


def _subfolders(path: Path) -> tuple[str, ...]:
    with os.scandir(path) as entries:
        return tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))


def _images(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        names = sorted(
            e.name
            for e in entries
            if e.name.lower().endswith(IMAGE_SUFFIXES) and not e.name.startswith(".") and e.is_file()
        )
    return [path / name for name in names]


def _classes_of(root: Path, domain: str, domains: tuple[str, ...], get_it_from: str) -> tuple[str, ...]:
    if not (root / domain).is_dir():
        raise UserError(f"no folder '{domain}' in {root}: expected {', '.join(domains)}. {get_it_from}".strip())
    return _subfolders(root / domain)


def _check_classes(root: Path, domain: str, held: dict[str, tuple[str, ...]], classes: tuple[str, ...]) -> None:
    missing = [name for name in classes if name not in held[domain]]
    surplus = [name for name in held[domain] if name not in classes]
    if missing:
        raise UserError(
            f"no class folder {', '.join(missing)} in {root / domain}: every domain needs all of the "
            f"{len(classes)} classes; add the folder (it may be empty)"
        )
    if surplus:
        raise UserError(
            f"surplus class folder {', '.join(surplus)} in {root / domain}: expected {', '.join(classes)}; "
            "move it away or use the data set 'folder', which takes any classes"
        )


def _check_domains(root: Path, domains: tuple[str, ...], files: Sequence[ImageFile]) -> None:
    filled = {file.domain for file in files}
    empty = [name for index, name in enumerate(domains) if index not in filled]
    if empty:
        raise UserError(
            f"no images in {root / empty[0]}: expected <class>/*{', *'.join(IMAGE_SUFFIXES)} files there; "
            "add them or remove the folder"
        )
