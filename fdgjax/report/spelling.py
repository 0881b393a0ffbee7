"""Methods' names as their papers write them."""

from fdgjax.methods import METHODS


def spelled(name: str) -> str:
    """A series' name whose method, its first word, is spelt as in its paper; other names are unchanged."""
    for word in (name.partition(",")[0], name.partition(" ")[0]):
        if word in METHODS:
            return (METHODS[word].title or word) + name.removeprefix(word)
    return name
