"""Short names of runs: what differs between them in as few keys as tell them apart."""

import itertools
from collections.abc import Mapping, Sequence

from fdgjax.report.escaping import is_number

LONGEST_NAME = 44
"""Characters beyond which names are numbered instead; a report has a table of what differs."""
PLAIN = ("data.name", "data.protocol")
"""Keys whose values say what they are."""


def short_names(runs: Sequence[tuple[str, Mapping[str, str]]]) -> list[str]:
    """A name for each run, given as a word and its settings; runs with the same word and settings get the same name.

    A word with one setting of the keys stands alone. Otherwise it is followed by the one key, or the two, by which all
    its settings differ, keys with words before those with numbers; where there are none, or they are long, by a number.
    """
    settings: dict[str, list[dict[str, str]]] = {}
    for word, own in runs:
        if dict(own) not in settings.setdefault(word, []):
            settings[word].append(dict(own))
    names = {word: named(word, each) for word, each in settings.items()}
    return [names[word][settings[word].index(dict(own))] for word, own in runs]


def named(word: str, settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The names of the different settings of one word."""
    if len(settings) == 1:
        return [word]
    keys = list(dict.fromkeys(key for own in settings for key in own))
    keys = [key for key in keys if len({own.get(key) for own in settings}) > 1]
    # Python's sort keeps the order of keys that are alike.
    keys.sort(key=lambda key: all(is_number(own.get(key, "")) for own in settings))
    for chosen in itertools.chain(*(itertools.combinations(keys, count) for count in (1, 2))):
        names = [", ".join([word, *(shown(key, own[key]) for key in chosen if key in own)]) for own in settings]
        if len(set(names)) == len(names) and max(map(len, names)) <= LONGEST_NAME:
            return names
    return [f"{word} {number}" for number in range(1, len(settings) + 1)]


def shown(key: str, value: str) -> str:
    """A setting as a part of a name; a long number, such as a search draws, with three digits."""
    if len(value) > 8 and "." in value and is_number(value):
        value = f"{float(value):.3g}"
    return value if key in PLAIN else f"{key.removeprefix('data.').removeprefix('method.')} {value}"
