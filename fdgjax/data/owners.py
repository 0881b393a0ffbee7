"""Owners of samples: which client has which of them, where it is given and not dealt."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.utils.errors import UserError, printable
from fdgjax.utils.words import spelt_apart

LOGGER = logging.getLogger("fdgjax")


class Owners(NamedTuple):
    """Who has each sample: int32 `[samples]`, a position in `names`. One owner may have samples of several domains."""

    numbers: np.ndarray
    names: tuple[str, ...]


def owners_of(words: Sequence[str]) -> Owners:
    """The owners of samples from the name of each one's owner; warns of two spellings of a name, raises a `UserError`
    for a sample without one."""
    if lacking := sum(not word.strip() for word in words):
        raise UserError(f"{lacking:,} of {len(words):,} samples have an owner without a name; expected a name for each")
    names, numbers = np.unique(np.array(words, np.str_), return_inverse=True)
    if twins := spelt_apart(map(str, names)):
        LOGGER.warning(
            printable(
                f"'{twins[0]}' and '{twins[1]}' own samples, two clients whose names differ in capitals or the form of "
                "accents alone"
            )
        )
    return Owners(numbers.astype(np.int32), tuple(map(str, names)))


def owned_rows(
    owners: Owners, domains: np.ndarray, sources: Sequence[int], groups: np.ndarray | None = None
) -> list[np.ndarray]:
    """The rows of each owner that has any of the source domains, ascending.

    Args:
      owners: of all samples. domains: int `[samples]`. sources: domains, in their order.
      groups: int `[samples]`, see `fdgjax.data.groups`; None for samples that are not grouped.

    Returns:
      The owners' rows, in the order of the first source domain that each has, and of their names.

    Raises:
      UserError: a group of which two owners have samples.
    """
    of_sources = np.flatnonzero(np.isin(domains, sources))
    own = owners.numbers[of_sources]
    if groups is not None and (torn := np.unique(np.stack([groups[of_sources], own]), axis=1)).size:
        names, counts = np.unique(torn[0], return_counts=True)
        if (counts > 1).any():
            first, second, *_ = (printable(owners.names[one]) for one in torn[1][torn[0] == names[counts > 1][0]])
            raise UserError(
                f"'{first}' and '{second}' own samples of one group, and {int((counts > 1).sum()):,} group(s) have "
                "several owners; expected one for all samples of a group; mend the owners, or leave the groups out"
            )
    rows = [of_sources[own == owner] for owner in np.unique(own)]
    place = {source: number for number, source in enumerate(sources)}
    return sorted(rows, key=lambda each: min(place[int(domain)] for domain in np.unique(domains[each])))
