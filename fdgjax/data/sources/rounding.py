"""What float32, in which numbers are stored, loses of their differences."""

import numpy as np

from fdgjax.utils.errors import UserError

SPREAD_LOST = 1e-3
"""The part of numbers' deviation by which they may be rounded."""


def rounding(numbers: np.ndarray) -> str:
    """What float32 does to numbers whose spread is small beside them, such as dates written as 20240131, in words.

    Args:
      numbers: `[n]` in their own precision; those that are not finite do not count.

    Returns:
      The words, if a number is rounded by more than `SPREAD_LOST` of their deviation; '' otherwise.
    """
    exact = numbers[np.isfinite(numbers)].astype(np.float64)
    with np.errstate(over="ignore"):
        off = np.abs(exact - exact.astype(np.float32)).max(initial=0)
    if not off > SPREAD_LOST * (spread := float(exact.std()) if exact.size else 0.0) > 0:
        return ""
    return f"numbers such as {exact[0]:.17g} with a deviation of {spread:.3g}; float32 rounds them by up to {off:.3g}"


def check_labels_kept(what: str, labels: np.ndarray) -> None:
    """Raises a `UserError` for numeric labels `[n]` that float32 rounds much: a model would learn other numbers, and
    its figures would be of these. what: the label in words."""
    if lost := rounding(labels):
        raise UserError(
            f"{what} has {lost}; expected at most {SPREAD_LOST:g} of the deviation; subtract a constant from them, "
            f"such as {labels.min():.17g}"
        )
