"""Docstrings as Markdown: their entries `key: meaning. other: meaning.` become lists.

The lines of an entry are read by `--help` as well (`fdgjax/config/help.py`), so that they are written for a terminal.
"""

import re
from collections.abc import Iterator, Sequence

SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|References|Example|Examples|Note):$")
PAIR = re.compile(r"^  (\w+(?:, \w+)+): (.*\n(?:    .*\n)*)", re.MULTILINE)
"""Arguments that share their description, which the parser reads as one name."""


def as_markdown(text: str, keys: Sequence[str] = ()) -> str:
    """A docstring with each entry of `keys` as an item of a list, and a blank line before every list."""
    return "\n\n".join(paragraph for part in text.split("\n\n") for paragraph in paragraphs(part, keys))


def paragraphs(part: str, keys: Sequence[str]) -> Iterator[str]:
    """A paragraph of a docstring, as Markdown: a section or an equation is one already."""
    if part.startswith("Args:\n"):
        yield PAIR.sub(lambda it: "".join(f"  {name}: {it.group(2)}" for name in it.group(1).split(", ")), part + "\n")
    elif part.startswith("    ") or SECTION.match(part.partition("\n")[0]):
        yield part
    else:
        yield from prose(part, keys)


def prose(part: str, keys: Sequence[str]) -> Iterator[str]:
    """What a paragraph says before its entries, and these as a list."""
    name = "|".join(sorted(map(re.escape, keys), key=len, reverse=True)) or r"(?!)"
    heads = list(re.finditer(rf"(?:^|(?<=[.;)]\s))\s*((?:{name})(?:, (?:{name}))*): ", part, re.MULTILINE))
    starts = [*(head.start() for head in heads), len(part)]
    if before := part[: starts[0]].strip("\n"):
        yield re.sub(r"(?<=\S)\n(- .*)", r"\n\n\1", before, count=1) if not before.startswith("- ") else before
    items = []
    for head, end in zip(heads, starts[1:], strict=True):
        named = ", ".join(f"`{key}`" for key in head.group(1).split(", "))
        items.append(f"- {named}: {' '.join(part[head.end() : end].split())}")
    if items:
        yield "\n".join(items)
