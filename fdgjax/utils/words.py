"""Lists in the values of keys."""

import csv


def words_of(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list, without the spaces around them; doubled ones stay. A word with a comma is in
    double quotes, `"name, first",age`, and a quote in it is doubled, as in CSV."""
    words = next(csv.reader([text], skipinitialspace=True), list[str]())
    return tuple(word for word in map(str.strip, words) if word)


def quoted(word: str) -> str:
    """A word as `words_of` reads it."""
    return '"' + word.replace('"', '""') + '"' if "," in word or word.startswith('"') else word
