"""Where a file of the repository is on the site, so that links written for the repository lead there, too."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
"""The address of a Markdown link to a file, and its anchor."""


def slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def linked(text: str, source: str) -> Iterator[str]:
    """The files and folders that a page links, from the repository's root; `source` is the page's own path there."""
    for path, _ in LINK.findall(text):
        yield normpath(f"{PurePosixPath(source).parent}/{path}")


def rewritten(text: str, source: str, page: str, place: Callable[[str], str]) -> str:
    """The text of the repository's file `source` as the site's page `page`.

    place: where a path of the repository is on the site, with an anchor where it is a part of a page.
    """

    def address(found: re.Match[str]) -> str:
        path, anchor = found.group(1), found.group(2) or ""
        there, hash_, inside = place(normpath(f"{PurePosixPath(source).parent}/{path}")).partition("#")
        return relpath(there, str(PurePosixPath(page).parent)) + (anchor or hash_ + inside)

    return LINK.sub(address, text)
