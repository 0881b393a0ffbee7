"""Lists in the values of keys, and spellings of names."""

import csv
import unicodedata
from collections.abc import Iterable

from fdgjax.utils.errors import UserError


def words_of(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list, without the spaces around them; doubled ones stay. A word with a comma or a
    line break is in double quotes, `"name, first",age`, and a quote in it is doubled, as in CSV.

    Raises:
      UserError: a line break that is not in quotes, or a word of more than 131,072 characters.
    """
    return tuple(word for word in map(str.strip, values_of(text)) if word)


def values_of(text: str) -> list[str]:
    """Likewise with empty words and the spaces after a word; none in an empty text. Raises like `words_of`."""
    try:
        return next(csv.reader([text], skipinitialspace=True), list[str]())
    except csv.Error as error:
        got = repr(text if len(text) < 80 else f"{text[:80]}...")
        wanted = 'expected words separated by commas, one with a line break in double quotes: "a\\nb"'
        raise UserError(f"got the list {got}; {wanted} ({error})") from error


def quoted(word: str) -> str:
    """A word as `words_of` reads it."""
    special = word[:1] in ('"', " ") or any(mark in word for mark in ",\n\r")
    return '"' + word.replace('"', '""') + '"' if special else word


def folded(name: str) -> str:
    """The name in one spelling: without capitals, and with accents in Unicode's composed form (NFC). Systems differ in
    the form that they give the names of files."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def spelt_apart(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that differ in spelling alone, see `folded`; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        if (before := seen.setdefault(folded(name), name)) != name:
            return before, name
    return None
