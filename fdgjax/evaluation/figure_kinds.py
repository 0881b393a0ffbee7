"""What is better of a figure of a run's summary, and how it is written."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from fdgjax.utils.errors import UserError


class FigureKind(NamedTuple):
    """sign: 1 where more is better, -1 where less is. scale, unit, digits: of the written number, `scale` times the
    figure. highest: the largest value that there is; the smallest is 0."""

    sign: int
    scale: float
    unit: str
    digits: int
    highest: float

    def written(self, value: float, sign: str = "") -> str:
        """The number without its unit; `sign`: "+" to write a plus, too."""
        return f"{self.scale * value:{sign}.{self.digits}f}"

    def briefly(self, value: float) -> str:
        """The number with a digit less."""
        return f"{self.scale * value:.{self.digits - 1}f}"


PERCENT = FigureKind(1, 100.0, "%", 1, 1.0)
KINDS: Mapping[str, FigureKind] = {
    "accuracy": PERCENT,
    "ece": PERCENT._replace(sign=-1),
    "success": PERCENT._replace(sign=-1),
    "loss": FigureKind(-1, 1.0, "", 3, math.inf),
}
"""By the last word of a figure's name, such as that of `ood_accuracy`."""


def figure_kind(name: str) -> FigureKind:
    """The kind of a figure, `KEY` or `KEY.KEY` of a summary.

    Raises:
      UserError: a name that is no figure's.
    """
    word = name.partition(".")[0].rpartition("_")[2]
    if word not in KINDS:
        raise UserError(
            f"the figure got '{name}'; expected a key of summary.json that ends in {', '.join(KINDS)}, such as "
            "ood_accuracy, ood_loss or per_domain_accuracy.DOMAIN"
        )
    return KINDS[word]
