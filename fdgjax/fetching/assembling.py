"""From the files of a release to the folder that the loaders read."""

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from fdgjax.data.layouts import Layout
from fdgjax.data.listing import IMAGE_SUFFIXES, SYSTEM
from fdgjax.errors import UserError
from fdgjax.fetching.release import Bounds
from fdgjax.fetching.unpacking import bounded, members, refused, unpack

MOST_JSON = 2**30
"""The most bytes of annotations."""

Assemble = Callable[[Mapping[str, Path], Path, Bounds], None]


def images_of(layout: Layout) -> Assemble:
    """The images of all archives, as `<domain>/<class>/<file>` by their own names, wherever in an archive they are."""
    return partial(_images, layout)


def _images(layout: Layout, files: Mapping[str, Path], into: Path, bounds: Bounds) -> None:
    for archive in files.values():
        if not unpack(archive, layout.classes, partial(in_layout, layout), into, bounds):
            raise refused(archive, f"no image of {layout.words}")


def in_layout(layout: Layout, path: PurePosixPath) -> Sequence[str]:
    """The last three parts of a path that belongs to the data set."""
    parts = path.parts[-3:]
    if len(parts) < 3 or path.suffix.lower() not in IMAGE_SUFFIXES:
        return ()
    if any(part.startswith(".") or part in SYSTEM for part in path.parts):
        return ()
    domain, label = map(layout.own, parts[:2])
    known = domain in layout.domains and (not layout.classes or label in layout.classes)
    return ("/".join(parts),) if known else ()


def as_they_are(files: Mapping[str, Path], into: Path, bounds: Bounds) -> None:
    """The files themselves."""
    del bounds
    for name, path in files.items():
        shutil.copyfile(path, into / name)


def camera_traps(layout: Layout, annotations: str, images: str) -> Assemble:
    """The images of an archive by the locations and categories of an archive of annotations, as DomainBed has them.

    Args:
      layout: its domains are `location_<location>`, its classes the categories that are used.
      annotations, images: the names of the files. An image of two categories is one of both classes.
    """

    def assemble(files: Mapping[str, Path], into: Path, bounds: Bounds) -> None:
        places: dict[str, set[str]] = defaultdict(set)
        for found in json_files(files[annotations], bounds):
            for name, folder in of_annotations(files[annotations], found):
                if len(in_layout(layout, PurePosixPath(folder) / "x.jpg")):
                    places[name].add(f"{folder}/{name}")
        unpack(files[images], (), lambda path: sorted(places.get(path.name, ())), into, bounds)

    return assemble


def json_files(archive: Path, bounds: Bounds) -> Iterator[Mapping[str, Any]]:
    """The content of an archive's JSON files."""
    small = bounds._replace(size=min(bounds.size, MOST_JSON))  # all of a file is in memory
    for member in bounded(archive, members(archive), small):
        path = PurePosixPath(member.name)
        if path.suffix == ".json" and not path.name.startswith("."):
            try:
                yield json.loads(b"".join(member.pieces()))
            except ValueError as error:
                raise UserError(
                    f"{archive} has no JSON in {member.name}; expected annotations: remove it, and repeat the command"
                ) from error


def of_annotations(archive: Path, found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of annotated images (COCO's format), with `location_<location>/<category>`."""
    try:
        categories = {entry["id"]: entry["name"] for entry in found["categories"]}
        pictures = {entry["id"]: (str(entry["file_name"]), entry["location"]) for entry in found["images"]}
        for entry in found["annotations"]:
            name, location = pictures[entry["image_id"]]
            yield PurePosixPath(name).name, f"location_{location}/{categories[entry['category_id']]}"
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{archive} lacks {error} in its annotations; expected COCO's format: remove it, and repeat the command"
        ) from error
