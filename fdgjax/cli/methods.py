"""The methods, grouped by who has the labels.

    fdgjax methods
    fdgjax methods --facts

With `--facts`, a table in Markdown: who has labels, what is trained, and how much is sent (docs/choosing.md).
`fdgjax train --config=NAME --help` explains a method's hyperparameters.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence

from fdgjax.methods import METHODS, Entry
from fdgjax.utils.command import command

HEADINGS = {"clients": "labels at the clients", "server": "labels at the server", "nowhere": "no labels"}
"""Of the methods' groups, by `Entry.labels`."""


@command
def main(argv: Sequence[str]) -> int:
    """Prints the list."""
    parser = argparse.ArgumentParser(prog="fdgjax methods", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--facts", action="store_true", help="a table of labels, models and bytes instead of summaries")
    if parser.parse_args(argv[1:]).facts:
        from fdgjax.cli.method_facts import facts, facts_table  # here, as it builds experiments

        lines = facts_table(facts(METHODS[name] for name in sorted(METHODS)))
    else:
        lines = listing(METHODS)
    for line in lines:
        print(line, flush=True)
    return 0


def listing(methods: Mapping[str, Entry]) -> Iterator[str]:
    """A line for each method, grouped below headings on where the labels are."""
    for place, heading in HEADINGS.items():
        yield f"{heading}:"
        yield from (f"  {name:12s} {it.summary}" for name, it in sorted(methods.items()) if it.labels == place)
