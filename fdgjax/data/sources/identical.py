"""Images that a data set has more than once, byte for byte."""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from fdgjax.data.sources.source import Example
from fdgjax.utils.errors import example_of, printable


def noting_identical(root: Path, examples: Iterable[Example]) -> Iterator[Example]:
    """The same examples; after the last, a warning of one line where images are identical.

    An image that the unseen domain shares with another, or that two classes share, makes accuracy mean something else.
    Images that are alike to the eye alone are not found.
    """
    first: dict[bytes, tuple[int, int, str]] = {}
    within, between, relabelled = list[str](), list[str](), list[str]()
    for example in examples:
        digest = hashlib.sha256(example.image).digest()[:16]
        label, domain, file = first.setdefault(digest, (example.label, example.domain, example.file))
        if file != example.file:
            pair = f"{example.file} is {file}"
            (within if domain == example.domain else between).append(pair)
            relabelled += [pair] if label != example.label else []
        yield example
    kinds = {"within a domain": within, "in two domains": between, "in two classes": relabelled}
    found = [f"{len(pairs):,} {kind} ({example_of(pairs)})" for kind, pairs in kinds.items() if pairs]
    if found:
        logging.getLogger("fdgjax").warning("identical images in %s: %s", printable(root), ", ".join(found))
