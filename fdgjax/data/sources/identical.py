"""Detection of byte-identical images in a data set."""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from fdgjax.data.sources.source import Example
from fdgjax.utils.errors import example_of, printable


def noting_identical(root: Path, examples: Iterable[Example]) -> Iterator[Example]:
    """Yields the examples unchanged; after the last one, logs a one-line warning if any images are identical.

    An image that the unseen domain shares with another domain, or that two classes share, biases the accuracy.
    Near-duplicates are not found.
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
