"""What is better of a figure of a run's summary, and how it is written."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from fdgjax.evaluation.probability_figures import FIGURES, figure_in
from fdgjax.utils.errors import UserError


class FigureKind(NamedTuple):
    """sign: 1 where more is better, -1 where less is. scale, unit, digits: of the written number, `scale` times the
    figure. highest, lowest: the largest and the smallest value that there is."""

    sign: int
    scale: float
    unit: str
    digits: int
    highest: float
    lowest: float = 0.0

    def written(self, value: float, sign: str = "") -> str:
        """The number without its unit; `sign`: "+" to write a plus, too."""
        return f"{self.scale * value:{sign}.{self.digits}f}"

    def briefly(self, value: float) -> str:
        """The number with a digit less."""
        return f"{self.scale * value:.{self.digits - 1}f}"


PERCENT = FigureKind(1, 100.0, "%", 1, 1.0)
LOSS = FigureKind(-1, 1.0, "", 3, math.inf)
KINDS: Mapping[str, FigureKind] = {
    "accuracy": PERCENT,
    "ece": PERCENT._replace(sign=-1),
    "success": PERCENT._replace(sign=-1),
    "loss": LOSS,
    "rmse": LOSS,
    "mae": LOSS,
    "r2": LOSS._replace(sign=1, highest=1.0, lowest=-math.inf),
}
"""By the last word of a figure's name, such as that of `ood_accuracy`; those of probabilities say it themselves."""


def figure_kind(name: str) -> FigureKind:
    """The kind of a figure, `KEY` or `KEY.KEY` of a summary.

    Raises:
      UserError: a name that is no figure's.
    """
    if of_probabilities := figure_in(name):
        return PERCENT if FIGURES[of_probabilities].larger else LOSS
    word = last_word(name)
    if word not in KINDS:
        raise UserError(
            f"the figure got '{name}'; expected a key of summary.json that ends in {', '.join(KINDS)}, such as "
            "ood_accuracy, ood_rmse or per_domain_accuracy.DOMAIN, or a figure of probabilities, such as ood_auroc"
        )
    return KINDS[word]


def table_scale(key: str) -> float:
    """By what a figure is multiplied in tables of several figures: 100, and 1 for losses and figures of predicted
    numbers."""
    return figure_kind(key).scale if has_kind(key) else 100.0


def in_table(key: str, value: float, sign: str = "", digits: int = 1) -> str:
    """A figure times its `table_scale` as tables write it: so many decimals of percent, and four significant digits of
    others, whose unit may be of any size; `sign`: "+" to write a plus, too."""
    return significant(value, sign) if table_scale(key) == 1 else f"{value:{sign}.{digits}f}"


def significant(value: float, sign: str = "") -> str:
    """Four significant digits."""
    return f"{value:{sign}.4g}"


def larger_is_better(key: str) -> bool:
    """Whether larger values of a record's key are better."""
    return figure_kind(key).sign > 0 if has_kind(key) else True


def has_kind(key: str) -> bool:
    """Whether a record's key is a figure of which `figure_kind` knows the kind."""
    return bool(figure_in(key)) or last_word(key) in KINDS


def last_word(name: str) -> str:
    """The last word of a figure's name."""
    return name.partition(".")[0].rpartition("_")[2]
