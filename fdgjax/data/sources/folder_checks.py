"""Checks for mistakes in folders of images, before any image is read."""

import logging
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from fdgjax.data.sources.listing import IMAGE_SUFFIXES, Listing, list_folder, suffixes
from fdgjax.utils.errors import UserError, few, printable
from fdgjax.utils.words import folded

UNFIT = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of control characters, surrogates (bytes that are not UTF-8) and line breaks."""

WANTED = f"<class>/*{', *'.join(IMAGE_SUFFIXES)}"

Boxes = Mapping[str, Listing]
"""The contents of a domain's class folders, by class."""


def has_domains(root: Path, domains: Sequence[str], top: Listing) -> None:
    """Raises a `UserError` where the data set's folder has no folders."""
    if not domains:
        hint = f"; images lie directly in it, such as {top.images[0].name}" if top.images else ""
        raise UserError(f"no domain folders in {root}: expected <domain>/<class>/*.jpg below data_dir{hint}")


def has_images(root: Path, top: Listing, shelves: Mapping[str, Listing], boxes: Mapping[str, Boxes]) -> None:
    """Raises a `UserError` where no domain has an image, but images lie one level too high or too deep."""
    boxed = [box for of_domain in boxes.values() for box in of_domain.values()]
    if any(box.images for box in boxed):
        return
    higher = next((shelf.images[0] for shelf in shelves.values() if shelf.images), None)
    if higher or (top.images and not boxed):
        raise UserError(
            f"no images in class folders of {root}: expected <domain>/<class>/*.jpg, but images lie one level too "
            f"high, such as {higher or top.images[0]}: give each domain a folder, or name the folder above as data_dir"
        )
    if deeper := next(filter(None, map(deeper_image, boxed)), None):
        raise UserError(
            f"no images in class folders of {root}: expected <domain>/<class>/*.jpg, but images lie one level too "
            f"deep, such as {deeper}: move them up, or set data_dir (config.data.dir) to {deeper.parents[2]}"
        )


def deeper_image(box: Listing) -> Path | None:
    """An image in a subfolder of a class folder, or None."""
    return next((image for folder in box.folders for image in list_folder(folder).images), None)


def class_count(root: Path, classes: Sequence[str], wanted: int, get_it: str) -> None:
    """Raises a `UserError` unless there are `wanted` classes; 0 allows any number."""
    if wanted not in (0, len(classes)):
        raise UserError(
            f"{len(classes)} different class folders in the domains of {root}: expected {wanted}; "
            f"the release is incomplete or something else lies there{get_it}"
        )


def same_classes(path: Path, held: Mapping[str, Path], classes: Sequence[str], only: bool) -> None:
    """Raises a `UserError` if a domain lacks a class, or has other classes and `only` does not let them be skipped."""
    missing = [name for name in classes if name not in held]
    surplus = [name for name in held if name not in classes]
    spellings = {folded(name): name for name in held}
    for name in missing:
        if twin := spellings.get(folded(name)):
            raise UserError(
                f"no class folder {name} in {path}, but {twin}, which differs in capitals or the form of "
                "accents alone: expected the same spelling in every domain; rename one of them"
            )
    if missing:
        raise UserError(
            f"no class folder {few(missing)} in {path}: every domain needs all of the "
            f"{len(classes)} classes; add the folder (it may be empty)"
        )
    if surplus and not only:
        raise UserError(
            f"surplus class folder {few(surplus)} in {path}: expected {few(classes)}; "
            "move it away or use the data set 'folder', which takes any classes"
        )


def domain_has_images(path: Path, shelf: Listing, boxes: Boxes) -> None:
    """Raises a `UserError` where a domain has no images."""
    if any(box.images for box in boxes.values()):
        return
    elsewhere = [*shelf.images[:1], *filter(None, map(deeper_image, boxes.values()))]
    hint = f"; images lie elsewhere, such as {elsewhere[0]}" if elsewhere else ""
    if others := [path for box in boxes.values() for path in box.others]:
        hint += f"; other files there: {suffixes(others)}"
    raise UserError(f"no images in {path}: expected {WANTED} files there; add them or remove the folder{hint}")


def names_are_text(domains: Sequence[Path], held: Mapping[str, Mapping[str, Path]], classes: Sequence[str]) -> None:
    """Raises a `UserError` where the name of a domain or class has characters that no table or figure can show."""
    for path in (*domains, *(folders[name] for folders in held.values() for name in classes)):
        if UNFIT & set(map(unicodedata.category, path.name)):
            raise UserError(
                f"the folder {path} has control characters in its name, or bytes that are not UTF-8: "
                "expected letters, digits and signs; rename it"
            )


def classes_have_images(root: Path, classes: Sequence[str], boxes: Mapping[str, Boxes]) -> None:
    """Warns of classes without an image in any domain; raises a `UserError` where fewer than two have one."""
    filled = [name for name in classes if any(of_domain[name].images for of_domain in boxes.values())]
    if len(filled) < 2:
        raise UserError(
            f"one class alone, {filled[0]}, has images in {root}: expected at least two, since nothing can be told "
            "apart; add <domain>/<class> folders with images"
        )
    if empty := [name for name in classes if name not in filled]:
        logging.getLogger("fdgjax").warning(
            f"no images of {printable(few(empty))} in any domain of {printable(root)}: the model keeps an output for "
            f"each of the {len(classes)} classes; remove the empty folders if that is not meant"
        )
