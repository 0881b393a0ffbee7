"""A folder of labelled images, `<class>/*` or `<domain>/<class>/*`, for a model that knows its classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fdgjax.data.sources.layouts import LAYOUTS, FolderLayout
from fdgjax.data.sources.listing import IMAGE_SUFFIXES, list_folder
from fdgjax.inference.images import listings, say_others
from fdgjax.utils.errors import UserError, few


class LabelledImage(NamedTuple):
    """An image file, the index of its class, and its domain; '' if the folder has no domains."""

    path: Path
    label: int
    domain: str


def labelled_images(folder: Path, class_names: Sequence[str], dataset: str) -> list[LabelledImage]:
    """The images of a folder of class folders, or of a folder of domains with class folders. Whatever lies below a
    class folder is of that class; images beside class folders have none, and are skipped with a line.

    Args:
      folder: the folder.
      class_names: the model's classes, in the order of its labels.
      dataset: the data set that the model was trained on; the spellings of its releases are understood.

    Raises:
      UserError: no such folder, no class folders, a class that the model does not know, or no images.
    """
    if not folder.is_dir():
        raise UserError(f"--data got '{folder}', which is no folder; expected one with a folder of images per class")
    layout = LAYOUTS.get(dataset, FolderLayout())
    top = list_folder(folder)

    def known(folders: Sequence[Path]) -> bool:
        return any(layout.own(one.name) in class_names for one in folders)

    inner = {} if known(top.folders) else {domain.name: list_folder(domain) for domain in top.folders}
    shelves = {domain: own.folders for domain, own in inner.items()} or {"": top.folders}
    if not any(map(known, shelves.values())):
        raise UserError(
            f"--data got '{folder}', which has no folder of a class that the model knows; expected <class>/* or "
            f"<domain>/<class>/*, the classes being {few(class_names)}"
        )
    labels = {name: label for label, name in enumerate(class_names)}
    boxes = [(domain, one) for domain, folders in shelves.items() for one in folders]
    if unknown := sorted({one.name for _, one in boxes if layout.own(one.name) not in labels}):
        raise UserError(
            f"--data got '{folder}', with folders of classes that the model does not know: {few(unknown)}; expected "
            f"{few(class_names)}; rename them, or give a folder without them"
        )
    each = [(domain, labels[layout.own(one.name)], list(listings(one))) for domain, one in boxes]
    above = [top, *inner.values()]
    without_class = [path for listing in above for path in listing.images]
    say_others(folder, [*above, *(listing for _, _, below in each for listing in below)], without_class)
    found = [
        LabelledImage(path, label, domain)
        for domain, label, below in each
        for listing in below
        for path in listing.images
    ]
    if not found:
        raise UserError(f"no images in {folder}; expected files that end in {', '.join(IMAGE_SUFFIXES)}")
    return found
