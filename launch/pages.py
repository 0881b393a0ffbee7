"""Pages whose tables a program writes between two marks, and the check that they are up to date."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from fdgjax.utils.errors import UserError
from fdgjax.utils.files import write_text

ROOT = Path(__file__).resolve().parents[1]

Edit = Callable[[str], str]
"""A page's text with a part of it written anew."""


def update_pages(program: str, description: str, pages: Mapping[str, Sequence[Edit]], argv: Sequence[str]) -> None:
    """Rewrites the pages, or with `--check` says whether they are as they would be written.

    Args:
      program: the module, `launch.results`.
      description: what the help says of it.
      pages: by their paths in the repository, what is written anew in each.
      argv: the arguments that follow the program's name.

    Raises:
      UserError: a page has no place for a table, or by `--check` another table.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--check", action="store_true", help="change nothing")
    args = parser.parse_args(argv)
    for name, edits in pages.items():
        page = before = (ROOT / name).read_text()
        for edit in edits:
            page = edit(page)
        if args.check and page != before:
            raise UserError(f"{ROOT / name} has other tables than it should have; run python -m {program}")
        if not args.check:
            write_text(ROOT / name, page)


def tables(program: str, makers: Mapping[str, Callable[[str], str]]) -> list[Edit]:
    """The edits of a page that write each table, made from the page so far, between the marks of its title."""
    return [partial(with_table, program=program, title=title, make=make) for title, make in makers.items()]


def with_table(page: str, program: str, title: str, make: Callable[[str], str]) -> str:
    """The page with a table between its marks.

    Args:
      page: the page so far.
      program: the module that writes it, as the marks name it.
      title: of the marks.
      make: the table, of the page.

    Raises:
      UserError: the page lacks the marks.
    """
    begin, end = f"<!-- {title}: by python -m {program} -->", f"<!-- end of {title} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise UserError(f"the page has no '{begin}' before '{end}'; expected both, once")
    return f"{before}{begin}\n\n{make(page)}\n{end}{after}"
