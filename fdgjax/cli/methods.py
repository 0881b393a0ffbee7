"""The methods, grouped by who has the labels.

fdgjax methods                lists them
fdgjax methods NAME           one method: equations, what it needs, its hyperparameters and presets
fdgjax methods [NAME] --facts a table in Markdown: who has labels, what is trained, and how much is sent
"""

import ast
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import fdgjax.methods
from fdgjax.config import make_config
from fdgjax.config.help import WIDTH, explained, pages_named
from fdgjax.methods import METHODS, Entry
from fdgjax.utils.command import command, parser_of
from fdgjax.utils.registry import lookup

HEADINGS = {"clients": "labels at the clients", "server": "labels at the server", "nowhere": "no labels"}
"""Of the methods' groups, by `Entry.labels`."""


@command
def main(argv: Sequence[str]) -> int:
    """Prints the list, or one method; returns the exit status, 2 for a method that does not exist."""
    parser = parser_of("methods", __doc__)
    parser.add_argument("name", nargs="?", metavar="NAME", help="a method to explain; without it, a list")
    parser.add_argument("--facts", action="store_true", help="a table of labels, models and bytes instead")
    args = parser.parse_args(argv[1:])
    asked = [lookup("method", args.name, METHODS)] if args.name else [METHODS[name] for name in sorted(METHODS)]
    if args.facts:
        from fdgjax.cli.method_facts import facts, facts_table  # here, as it builds experiments

        lines = facts_table(facts(asked))
    else:
        lines = about(asked[0]) if args.name else listing(METHODS)
    for line in lines:
        print(line, flush=True)
    return 0


def listing(methods: Mapping[str, Entry]) -> Iterator[str]:
    """A line for each method, grouped below headings on where the labels are."""
    for place, heading in HEADINGS.items():
        yield f"{heading}:"
        yield from (f"  {name:12s} {it.summary}" for name, it in sorted(methods.items()) if it.labels == place)


def about(entry: Entry) -> Iterator[str]:
    """The lines on one method: its summary, its file's docstring with the equations, what it needs, its keys with their
    defaults and the values that a search tries, and its own presets."""
    yield f"{entry.name}: {entry.summary}"
    yield f"equations and code: {file_of(entry)}"
    for part in docstring_of(entry).split("\n\n"):
        yield ""
        yield from part.splitlines() if part.startswith(" ") else textwrap.wrap(pages_named(part), WIDTH)
    yield ""
    yield from textwrap.wrap(f"needs: {'; '.join(needs(entry))}", WIDTH)
    if entry.presets:
        yield from textwrap.wrap(f"has settings of its own for: {', '.join(entry.presets)}", WIDTH)
    yield ""
    yield "hyperparameters:"
    yield from explained(make_config(entry.name), "method")


def file_of(entry: Entry) -> Path:
    """The file with a method's equations: one of this package's, or of the program that registered it."""
    return Path(METHODS.origins.get(entry.name) or Path(fdgjax.methods.__path__[0], f"{entry.name}.py"))


def docstring_of(entry: Entry) -> str:
    """What the file with a method's equations says of it; empty without."""
    return ast.get_docstring(ast.parse(file_of(entry).read_text())) or ""


def needs(entry: Entry) -> Iterator[str]:
    """What a method needs, in words."""
    yield HEADINGS[entry.labels]
    if entry.protocol == "labelled_server":
        yield "the protocol labelled_server"
    if entry.unit:
        yield f"a network whose units can be '{entry.unit}'"
    if entry.head:
        yield f"the head '{entry.head}' on its network"
    hyper = entry.hyper(name=entry.name)
    if entry.pooled(hyper):
        yield "all data in one place"
    if entry.pixels(hyper):
        yield "the images in every round, so that features of frozen stages cannot be kept"
