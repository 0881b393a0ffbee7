"""Data sets kept as folders of images, `<domain>/<class>/*.jpg`: PACS, VLCS, DomainNet and others, and users' own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fdgjax.data.sources import folder_checks as checks
from fdgjax.data.sources.identical import noting_identical
from fdgjax.data.sources.layouts import FolderLayout
from fdgjax.data.sources.listing import (
    UNREAD_SUFFIXES,
    Listing,
    is_folder,
    list_folder,
    list_whole,
    say_skipped,
    suffixes,
)
from fdgjax.data.sources.source import Example, Source, fingerprint, read_bytes
from fdgjax.utils.errors import UserError, printable


class ImageFile(NamedTuple):
    """One image file with the indices of its class and domain."""

    path: Path
    label: int
    domain: int


def folder_data(layout: FolderLayout) -> Callable[[str], Source]:
    """The registry entry of a data set of image folders with this layout.

    Returns:
      A function from `data_dir` to the `Source` found there. It raises `UserError` where the folder, a domain
      or a class is missing, a domain holds no image at all, or all images are of one class; a class without images
      in some domain is fine. Everything else in the folders (see `_skipped`) is skipped and logged.
    """
    return partial(_find, layout)


def _find(layout: FolderLayout, data_dir: str) -> Source:
    root = _root(data_dir, layout)
    top = list_whole(root)
    found = layout.named(top)
    domains = layout.domains or tuple(found)
    checks.has_domains(root, domains, top)
    for domain in domains:
        if domain not in found:
            raise UserError(f"no folder '{domain}' in {root}: expected {', '.join(domains)}{layout.get_it(data_dir)}")
    shelves = {domain: list_whole(found[domain]) for domain in domains}
    held = {domain: layout.named(shelf) for domain, shelf in shelves.items()}
    classes = layout.classes or tuple(sorted({name for names in held.values() for name in names}))
    boxes = {domain: _boxes(names, classes) for domain, names in held.items()}
    checks.has_images(root, top, shelves, boxes)
    checks.class_count(root, classes, layout.class_count, layout.get_it(data_dir))
    for domain in domains:
        checks.same_classes(found[domain], held[domain], classes, layout.only)
        checks.domain_has_images(found[domain], shelves[domain], boxes[domain])
    checks.names_are_text([found[domain] for domain in domains], held, classes)
    checks.classes_have_images(root, classes, boxes)
    say_skipped(root, *_skipped(top, found, held, shelves, boxes))
    files = [
        ImageFile(path, label, index)
        for index, domain in enumerate(domains)
        for label, name in enumerate(classes)
        for path in boxes[domain][name].images
    ]
    return Source(
        domain_names=domains,
        class_names=classes,
        channels=3,
        native_size=0,
        samples=len(files),
        fingerprint=fingerprint(root, (file.path for file in files), domains, classes),
        description=f"image files below {printable(root)}",
        examples=lambda: noting_identical(root, _examples(files)),
        names=[f"{domains[domain]}/{classes[label]}/{path.name}" for path, label, domain in files],
    )


def _boxes(held: Mapping[str, Path], classes: Sequence[str]) -> dict[str, Listing]:
    """The contents of a domain's class folders."""
    return {name: list_whole(held[name]) for name in classes if name in held}


def _examples(files: Sequence[ImageFile]) -> Iterator[Example]:
    for path, label, domain in files:
        yield Example(read_bytes(path), label, domain, printable(path))  # a record holds valid UTF-8 only


def _skipped(
    top: Listing,
    found: Mapping[str, Path],
    held: Mapping[str, Mapping[str, Path]],
    shelves: Mapping[str, Listing],
    boxes: Mapping[str, Mapping[str, Listing]],
) -> tuple[dict[str, list[Path]], bool]:
    """Everything other than images in class folders, by kind, and whether images may be among it."""
    shelved = list(shelves.values())
    boxed = [box for of_domain in boxes.values() for box in of_domain.values()]
    everything = [top, *shelved, *boxed]
    outside = [path for listing in (top, *shelved) for path in listing.images]
    deeper = [path for listing in boxed for path in listing.folders]
    other_names = [path for name, path in found.items() if name not in shelves]
    other_names += [path for domain in held for name, path in held[domain].items() if name not in boxes[domain]]
    others = [path for listing in everything for path in listing.others]
    unread = [path for path in others if path.name.lower().endswith(UNREAD_SUFFIXES)]
    rest = [path for path in others if path not in set(unread)]
    skipped = {
        "images outside class folders": outside,
        "folders inside class folders": deeper,
        "folders of other names": other_names,
        f"images to be converted to JPEG or PNG ({suffixes(unread)})": unread,
        f"files that are not images ({suffixes(rest)})": rest,
        "hidden or system files": [path for listing in everything for path in listing.hidden],
    }
    return skipped, bool(outside or deeper or unread)


def _root(data_dir: str, layout: FolderLayout) -> Path:
    if not data_dir:
        raise UserError(
            f"config.data.dir got ''; expected the folder that holds {layout.words}{layout.get_it(data_dir)}"
        )
    base = Path(data_dir).expanduser().absolute()
    if not is_folder(base):
        raise UserError(
            f"config.data.dir got {base}, which is no folder; expected the one that holds {layout.words}"
            f"{layout.get_it(data_dir)}"
        )
    tried = [base]
    if layout.folder:
        tried.insert(0, layout.named(list_folder(base)).get(layout.folder, base / layout.folder))
    for root in tried:
        if is_folder(root) and (not layout.domains or layout.named(list_folder(root)).keys() & set(layout.domains)):
            return root
    looked = " or ".join(str(root) for root in tried)
    raise UserError(
        f"config.data.dir has no folder {', '.join(layout.domains)} in {looked}; expected {layout.words} "
        f"there{layout.get_it(data_dir)}"
    )
