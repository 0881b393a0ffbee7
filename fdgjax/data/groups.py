"""Groups of samples that are alike, such as the images of one patient or of one camera's burst.

Whole groups are held out and given to clients: a model is then tested on patients that it has not seen, and the
accuracy on held-out samples, the choice of a round and the calibration of conformal sets are those of new patients.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fdgjax.utils.errors import UserError


class NoGroupError(UserError):
    """Samples that say nothing of their group."""


def numbered(domains: np.ndarray, names: Iterable[str]) -> np.ndarray:
    """The groups of samples, int32 `[samples]`, from the domain of each, int `[samples]`, and the name of its group
    there: two domains share no group."""
    each = list(zip(domains.tolist(), names, strict=True))
    numbers = {one: number for number, one in enumerate(sorted(set(each)))}
    return np.array([numbers[one] for one in each], np.int32)


def one_of_each(rows: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """One of the rows for each group among them; all rows of samples that are not grouped. groups: int `[samples]`."""
    return rows if groups is None else rows[np.unique(groups[rows], return_index=True)[1]]


def classes_of_groups(labels: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of samples the place of each one's group among those that there are, int `[n]`, and whether a group has samples
    of a class, bool `[groups, classes]`, of the classes that there are. labels, groups: int `[n]`."""
    names, unit = np.unique(groups, return_inverse=True)
    kinds, kind = np.unique(labels, return_inverse=True)
    has = np.zeros((len(names), len(kinds)), bool)
    has[unit, kind] = True
    return unit, has


def random_parts(
    rows: np.ndarray, sizes: Sequence[int], rng: np.random.Generator, groups: np.ndarray | None, whose: str
) -> list[np.ndarray]:
    """Random parts of `rows`, disjoint: one of each size, and the rest.

    With groups, each part takes in turn the groups that it has room for, in a random order, and at least one: the
    smallest that is left if none fits. A part may be smaller than its size then.

    Args:
      rows: some of the data set's rows, ascending.
      sizes: the number of samples of each part but the last.
      rng: draws them.
      groups: int `[samples]`, the group of each of the data set's samples; None for samples that are not grouped.
      whose: the samples are, for error messages.

    Returns:
      The rows of each part, ascending.

    Raises:
      UserError: too few groups for the parts.
    """
    if groups is None:
        return [np.sort(part) for part in np.split(rng.permutation(rows), np.cumsum(sizes))]
    names, unit, counts = np.unique(groups[rows], return_inverse=True, return_counts=True)
    rest = len(sizes)
    order, part_of = rng.permutation(len(names)), np.full(len(names), rest)
    for part, room in enumerate(sizes):
        free, left = order[part_of[order] == rest], room
        for one, count in zip(free.tolist(), counts[free].tolist(), strict=True):
            if count <= left:
                part_of[one] = part
                left -= count
        if left == room and len(free):
            part_of[free[np.argmin(counts[free])]] = part
    if not (part_of == rest).any():
        raise UserError(
            f"{whose} has {len(rows)} samples of {len(names)} group(s): holding out whole groups leaves none to train "
            "on; expected more groups, or leave config.data.group out"
        )
    return [rows[part_of[unit] == part] for part in range(len(sizes) + 1)]


def equal_parts(rows: np.ndarray, count: int, rng: np.random.Generator, groups: np.ndarray | None) -> list[np.ndarray]:
    """`count` random parts of `rows`, whose sizes differ by one sample at most.

    With groups, the largest groups go first, each to the part with the fewest samples so far, in a random order among
    equals; sizes differ by the largest group at most, and a part is empty if there are fewer groups than parts.

    Args:
      rows: some of the data set's rows, ascending. rng: draws the parts. groups: like those of `random_parts`.
    """
    if groups is None:
        return np.array_split(rng.permutation(rows), count)
    names, unit, counts = np.unique(groups[rows], return_inverse=True, return_counts=True)
    order = rng.permutation(len(names))
    loads, part_of = np.zeros(count, np.int64), np.zeros(len(names), np.int64)
    for one in order[np.argsort(-counts[order], kind="stable")]:
        part_of[one] = np.argmin(loads)
        loads[part_of[one]] += counts[one]
    return [rows[part_of[unit] == part] for part in range(count)]
