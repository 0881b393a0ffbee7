"""The help of a config: each key with its value, what it means, and what it may be.

Meanings are read from the docstrings of the dataclasses, `key: meaning.` or `key, other: meaning.`; choices and bounds
from the declarations of the fields.
"""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from fdgjax.config.command_line import is_config, joined_words, leaves, read_flags
from fdgjax.config.make import SECTIONS
from fdgjax.config.schema import Config
from fdgjax.distributed import AUTO, BY_HAND, OPTION
from fdgjax.methods import METHODS

WIDTH = 110


def usage(argv: Sequence[str]) -> str:
    """How to call the program; if a config is given, also its keys with their values and meanings."""
    lines = ["fdgjax train --config=METHOD[:PRESET] --workdir=DIR --config.KEY=VALUE ..."]
    chosen = [word for word in joined_words(argv) if is_config(word)]
    lines.append(f"one of several processes that train one run: --{OPTION}={AUTO}, or --{OPTION}={BY_HAND}")
    if not chosen:
        return "\n".join([*lines, "give --config=METHOD --help to see its keys; `fdgjax methods` lists the methods"])
    config, _ = read_flags([argv[0], *chosen])
    return "\n".join([*lines, *explained(config)])


def explained(config: ConfigDict) -> Iterator[str]:
    """The lines for each key: its value and, indented below, its meaning and allowed values."""
    for key, value in leaves(config):
        yield f"  --config.{key}={value}"
        section, _, name = key.rpartition(".")
        kind = class_of(section, config.method.name)
        words = ". ".join(filter(None, [meanings(kind).get(name, "").rstrip("."), may_be(kind, name, value)]))
        yield from textwrap.wrap(words, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)


def class_of(section: str, method: str) -> type[Any]:
    """The dataclass that holds the keys of a section; the section '' is the top level."""
    kinds: Mapping[str, type[Any]] = {"": Config, "method": METHODS[method].hyper, **SECTIONS}
    return kinds[section]


def meanings(kind: type[Any]) -> Mapping[str, str]:
    """The meaning of each field, from the docstrings of a dataclass and of its base classes.

    A field without an entry of its own gets the first entry that mentions it.
    """
    fields = [field.name for field in dataclasses.fields(kind)]
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        found |= entries(inspect.cleandoc(one.__doc__ or ""), fields) if dataclasses.is_dataclass(one) else {}
    for name in fields:
        mentions = (text for text in found.values() if re.search(rf"\b{name}\b", text))
        found[name] = found.get(name) or next(mentions, "")
    return found


def entries(text: str, fields: Sequence[str]) -> dict[str, str]:
    """The entries of a docstring, by field name."""
    name = "|".join(sorted(fields, key=len, reverse=True))
    heads = list(re.finditer(rf"(?:^|(?<=[.;)]\s))\s*((?:{name})(?:, (?:{name}))*): ", text, re.MULTILINE))
    places = [*(head.start() for head in heads), len(text)]
    found: dict[str, str] = {}
    for head, end in zip(heads, places[1:], strict=True):
        meaning = " ".join(text[head.end() : end].partition("\n\n")[0].split())
        found |= dict.fromkeys(head.group(1).split(", "), meaning)
    return found


def may_be(kind: type[Any], name: str, value: Any) -> str:
    """The choices or bounds of a key."""
    (field,) = (field for field in dataclasses.fields(kind) if field.name == name)
    if "search" in field.metadata:
        return of_hyper(field.metadata, value)
    if isinstance(value, bool):
        return "True or False."
    words = str(field.metadata.get("allowed", ""))
    return f"{words[0].upper()}{words[1:]}." if words else ""


def of_hyper(metadata: Mapping[str, Any], value: Any) -> str:
    """The choices or bounds of a hyperparameter, the values a search tries, and the source of these values."""
    tried = ", ".join(map(str, metadata["search"]))
    source = f"({metadata['source']})"
    if isinstance(value, bool):
        return f"True or False {source}."
    if isinstance(value, str):
        return f"{'For example' if metadata['examples'] else 'One of'}: {tried} {source}."
    return f"{str(metadata['bounds']).capitalize()}; search: {tried} {source}."
