"""A folder of labelled images, `<class>/*` or `<domain>/<class>/*`, for a model that knows its classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fdgjax.data.sources.layouts import LAYOUTS, FolderLayout
from fdgjax.data.sources.listing import list_folder
from fdgjax.inference.images import images_below
from fdgjax.utils.errors import LISTED, UserError


class LabelledImage(NamedTuple):
    """An image file, the index of its class, and its domain; '' if the folder has no domains."""

    path: Path
    label: int
    domain: str


def labelled_images(folder: Path, class_names: Sequence[str], dataset: str) -> list[LabelledImage]:
    """The images of a folder of class folders, or of a folder of domains with class folders. Whatever lies below a
    class folder is of that class.

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
    top = list_folder(folder).folders
    if any(layout.own(one.name) in class_names for one in top):
        return of_domain("", top, class_names, layout)
    below = {domain.name: list_folder(domain).folders for domain in top}
    if not any(layout.own(one.name) in class_names for folders in below.values() for one in folders):
        raise UserError(
            f"--data got '{folder}', which has no folder of a class that the model knows; expected <class>/* or "
            f"<domain>/<class>/*, the classes being {few(class_names)}"
        )
    return [
        image
        for domain, folders in below.items()
        if folders
        for image in of_domain(domain, folders, class_names, layout)
    ]


def of_domain(
    domain: str, folders: Sequence[Path], class_names: Sequence[str], layout: FolderLayout
) -> list[LabelledImage]:
    """The images of one domain's class folders; raises like `labelled_images`."""
    labels = {name: label for label, name in enumerate(class_names)}
    if unknown := [one for one in folders if layout.own(one.name) not in labels]:
        raise UserError(
            f"the model does not know the classes {few([one.name for one in unknown])} in {unknown[0].parent}; expected "
            f"folders named {few(class_names)}; rename them, or give a folder without them"
        )
    filled = [one for one in folders if list_folder(one).images or list_folder(one).folders]
    return [LabelledImage(path, labels[layout.own(one.name)], domain) for one in filled for path in images_below(one)]


def few(names: Sequence[str]) -> str:
    """The first names of many."""
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
