"""Tables in a release: written as one CSV with a header per domain."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fdgjax.data.download.archives import archive_members, refusing
from fdgjax.data.download.release import Assemble

MOST = 2**26
"""The maximum number of bytes of all members of an archive of tables, of which few are written."""


def tables_of(domains: Mapping[str, str], columns: Sequence[str]) -> Assemble:
    """Writes the comma-separated members of an archive as `<domain>.csv`, with the columns' names as the first line and
    every value as it is; other members are left where they are.

    Args:
      domains: for each member's file name the domain.
      columns: the names, which the members do not have.
    """

    def assemble(files: Mapping[str, Path], into: Path, most: int) -> None:
        del most  # the archive also holds what is not unpacked
        for archive in files.values():
            with refusing(archive):
                found = {
                    member.path.name: member.read()
                    for member in archive_members(archive, MOST)
                    if member.path.name in domains
                }
                for name, domain in domains.items():
                    if name not in found:
                        raise ValueError(f"no {name}")
                    (into / f"{domain}.csv").write_text(with_header(found[name].decode(), columns, name))

    return assemble


def with_header(text: str, columns: Sequence[str], name: str) -> str:
    """The lines below the columns' names; raises a `ValueError` for a line with another number of values."""
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        if (values := line.count(",") + 1) != len(columns):
            raise ValueError(f"line {number} of {name} has {values} values instead of {len(columns)}")
    if not lines:
        raise ValueError(f"{name} is empty")
    return "\n".join([",".join(columns), *lines]) + "\n"
