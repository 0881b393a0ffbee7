"""The lists of methods and networks in README and docs, from the entries of the registries.

python -m launch.registries            # rewrites them
python -m launch.registries --check    # says whether they are what the code gives, and changes nothing
"""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial

from fdgjax.cli.method_facts import Facts, facts, facts_table
from fdgjax.methods import METHODS
from fdgjax.models import MODELS, UNITS
from fdgjax.models.cost import cost
from fdgjax.report.spelling import spelled
from fdgjax.utils.command import command
from fdgjax.utils.errors import UserError
from fdgjax.utils.markdown import markdown_table
from launch.pages import Edit, tables, update_pages

PROGRAM = "launch.registries"
CLASSES, IMAGE = 10, (224, 224, 3)
"""What parameters of networks are counted for that are made for no particular samples."""
ONE_MODEL = "Labelled clients, one model"
POOLED = "Pooled data: centralised domain generalization"
PERSONALISED = "Labelled clients, personalised models"
ELSEWHERE: Mapping[str, str] = {
    "server": "Labelled server, unlabelled clients: semi-supervised",
    "nowhere": "No labels: self-supervised",
}
"""The groups of methods without labels at the clients, by where the labels are."""
GROUPS: Mapping[str, str] = {
    ONE_MODEL: "",
    POOLED: "; all but Central also at clients (`method.pooled=False`)",
    PERSONALISED: "",
    **dict.fromkeys(ELSEWHERE.values(), ""),
}
"""The groups in the order of the pages, and what README adds after the methods of each."""


@command
def main(argv: Sequence[str]) -> int:
    """Writes the lists, or checks them; returns 0 when done, 2 where a page is not as it should be."""
    update_pages(PROGRAM, str(__doc__).partition("\n")[0], PAGES, argv[1:])
    return 0


@cache
def all_facts() -> Mapping[str, Facts]:
    """The facts of every method, which take most of a minute, by its name; sorted."""
    return {of.name: of for of in facts(METHODS[name] for name in sorted(METHODS))}


def group_of(of: Facts) -> str:
    """The group of a method."""
    if of.labels in ELSEWHERE:
        return ELSEWHERE[of.labels]
    if of.up is None:
        return POOLED
    return ONE_MODEL if of.comes_out == "one model" else PERSONALISED


def in_group(group: str) -> list[str]:
    """The names of a group's methods, sorted."""
    return [name for name, of in all_facts().items() if group_of(of) == group]


def links(_: str) -> str:
    """README's list: a line for each group, with a link to each method's file."""
    lines = []
    for group, added in GROUPS.items():
        linked = [f"[{spelled(name)}](fdgjax/methods/{name}.py)" for name in in_group(group)]
        lines.append(f"- **{group}**: {', '.join(sorted(linked, key=str.casefold))}{added}.\n")
    return "".join(lines)


def summaries(group: str, _: str) -> str:
    """A group's table: each method's summary."""
    rows = [[f"[`{name}`](../fdgjax/methods/{name}.py)", METHODS[name].summary] for name in in_group(group)]
    return "\n".join([*markdown_table(["method", "what it is"], rows), ""])


def all_rows(_: str) -> str:
    """The table of `fdgjax methods --facts`."""
    return "\n".join([*facts_table(all_facts().values()), ""])


def networks(_: str) -> str:
    """Each network's parameters and its FDSE twin's, in millions."""
    rows = []
    for name, maker in MODELS.items():
        sample = maker.sample or IMAGE
        try:
            twin = f"{cost(maker(CLASSES, unit=UNITS['dse']), sample).parameters / 1e6:.2f} M"
        except UserError:
            twin = "none"
        own = f"{cost(maker(CLASSES), sample).parameters / 1e6:.2f} M"
        rows.append([f"`{name}`", own, twin, maker.summary])
    head = ["model", "parameters", "FDSE twin", "what it is"]
    return "\n".join([*markdown_table(head, rows, right=head[1:3]), ""])


def stages(_: str) -> str:
    """The stages of each network that has any; networks of the same stages share a row."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, maker in MODELS.items():
        if maker.stages:
            found.setdefault(tuple(maker.stages), []).append(name)
    rows = [[", ".join(f"`{name}`" for name in names), f"`{' '.join(of)}`"] for of, names in found.items()]
    return "\n".join([*markdown_table(["network", "stages"], rows), ""])


def counted(page: str) -> str:
    """README with the number of methods."""
    return re.sub(r"\d+ methods on one engine", f"{len(METHODS)} methods on one engine", page)


PAGES: Mapping[str, Sequence[Edit]] = {
    "README.md": [counted, *tables(PROGRAM, {"methods": links})],
    "docs/methods.md": tables(PROGRAM, {group: partial(summaries, group) for group in GROUPS}),
    "docs/models.md": tables(PROGRAM, {"networks": networks, "stages": stages}),
    "docs/choosing.md": tables(PROGRAM, {"facts": all_rows}),
}
"""What is written in each page."""


if __name__ == "__main__":
    sys.exit(main(sys.argv))
