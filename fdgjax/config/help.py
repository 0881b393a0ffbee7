"""The help of a config: each key with its value, what it means, and what it may be, in groups.

Meanings are read from the docstrings of the dataclasses, `key: meaning.` or `key, other: meaning.`; choices and bounds
from the declarations of the fields.
"""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from fdgjax.config.command_line import is_config, joined_words, leaves, read_flags
from fdgjax.config.make import SECTIONS, typed
from fdgjax.config.schema import Config
from fdgjax.distributed import AUTO, BY_HAND, OPTION
from fdgjax.methods import METHODS
from fdgjax.methods.parts.hyper import has_effect
from fdgjax.utils.registry import lookup

WIDTH = 80
HELP = ("--help", "-help", "-h")


class Group(NamedTuple):
    """A group of keys: what they are about, and the sections and top-level keys that are in it, in order."""

    subject: str
    parts: tuple[str, ...]


GROUPS: Mapping[str, Group] = {
    "data": Group("the federation: images, domains, clients", ("data",)),
    "model": Group("the network that clients train", ("model", "dtype")),
    "method": Group("the method's hyperparameters, its own first", ("method",)),
    "training": Group(
        "what is predicted, rounds, local training, seeds, hardware",
        (
            *("task", "rounds", "local_epochs", "batch_size", "drop_last", "clients_per_round", "pseudo_labels"),
            *("seed", "seeds", "seed_axis", "client_axis", "chunk", "unroll", "devices"),
        ),
    ),
    "evaluation": Group(
        "what is measured when, and which round is the result",
        (
            *("eval_every", "eval_batch_size", "figures", "figures_threshold"),
            *("figures_sensitivity", "figures_resamples"),
            *("selection", "client_model", "adaptation", "probe"),
        ),
    ),
    "records": Group("what a run leaves", ("checkpoint_every", "writers")),
    "faults": Group(
        "clients that fail or are hostile, and privacy", ("drop_nonfinite", "defence", "attack", "privacy")
    ),
}
"""The groups of keys, in the order of the help; every key is in one."""


def asks_for_help(word: str) -> bool:
    """Whether a word is `--help` or `--help=GROUP`."""
    return word.partition("=")[0] in HELP


def usage(argv: Sequence[str], group: str = "") -> str:
    """How to call the program; if a config is given, also its keys with their values and meanings.

    Args:
      argv: the command's arguments, program name first.
      group: the entry of `GROUPS` to show; '' for all of them.

    Raises:
      UserError: an unknown group, or an invalid config.
    """
    shown = {group: lookup("group of keys", group, GROUPS)} if group else GROUPS
    chosen = [word for word in joined_words(argv) if is_config(word)]
    if chosen:
        config, _ = read_flags([argv[0], *chosen])
        lines = [line for name in shown for line in ("", f"{name}: {GROUPS[name].subject}", *explained(config, name))]
        return "\n".join(lines[1:] if group else [*synopsis(), *lines])
    asked = "give --config=METHOD, too, to see the values of a group's keys; `fdgjax methods` lists the methods"
    return "\n".join([*synopsis(), "", *textwrap.wrap(asked, WIDTH)])


def synopsis() -> Iterator[str]:
    """How to call the program, and the groups of keys."""
    yield "fdgjax train --config=METHOD[:PRESET] --workdir=DIR --config.KEY=VALUE ..."
    yield "one of several processes that train one run:"
    yield f"  --{OPTION}={AUTO}, or --{OPTION}={BY_HAND}"
    yield "one group of keys alone, with --config=METHOD:"
    yield from (f"  {f'--help={name}':18s} {group.subject}" for name, group in GROUPS.items())


def explained(config: ConfigDict, group: str) -> Iterator[str]:
    """The lines for each key of a group: its value and, indented below, its meaning and allowed values, and whether a
    hyperparameter has no effect by the values of the others."""
    values, h = leaves(config), typed(config.to_dict()).method
    for key in keys_of(group, config.method.name):
        yield f"  --config.{key}={values[key]}"
        section, _, name = key.rpartition(".")
        kind = class_of(section, config.method.name)
        idle = "" if kind is not type(h) or has_effect(h, name) else "No effect with the other keys' values."
        words = ". ".join(filter(None, [meanings(kind).get(name, "").rstrip(".;"), may_be(kind, name, values[key])]))
        words = " ".join(filter(None, [words, idle]))
        yield from textwrap.wrap(pages_named(words), WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)


def keys_of(group: str, method: str) -> Iterator[str]:
    """The keys of a group in order; those of a method before those it shares with the methods it is built on."""
    for part in GROUPS[group].parts:
        if part != "method" and part not in SECTIONS:
            yield part
            continue
        kind = class_of(part, method)
        declared = map(inspect.get_annotations, kind.__mro__)
        names = {field.name for field in dataclasses.fields(kind)}
        yield from (
            f"{part}.{name}" for name in dict.fromkeys(name for one in declared for name in one if name in names)
        )


def pages_named(text: str) -> str:
    """The text with `docs/PAGE.md`, a file that is not installed, as the documentation on its subject."""
    return re.sub(r"docs/(\w+)\.md", r"the documentation on \1", text)


def class_of(section: str, method: str) -> type[Any]:
    """The dataclass that holds the keys of a section; the section '' is the top level."""
    kinds: Mapping[str, type[Any]] = {"": Config, "method": METHODS[method].hyper, **SECTIONS}
    return kinds[section]


def meanings(kind: type[Any]) -> Mapping[str, str]:
    """The meaning of each field, from the docstrings of a dataclass and of its base classes.

    A field without an entry of its own gets the first entry that mentions it in the docstring of a class that has it.
    """
    fields = [field.name for field in dataclasses.fields(kind)]
    found: dict[str, str] = {}
    for one in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        own = entries(inspect.cleandoc(one.__doc__ or ""), fields)
        found |= own
        for name in {field.name for field in dataclasses.fields(one)} - {key for key, text in found.items() if text}:
            found[name] = next((text for text in own.values() if re.search(rf"\b{name}\b", text)), "")
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
