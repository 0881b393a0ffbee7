"""The answer of `fdgjax choose`, read from its runs: the methods that cannot be told from the best, which of them is
recommended, and what to expect on a new domain."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.evaluation.best_set import SCORES, best_set, prediction_interval
from fdgjax.evaluation.probability_figures import larger_is_better
from fdgjax.evaluation.statistics import LEVEL, paired
from fdgjax.sweeps.cells import Cell
from fdgjax.sweeps.choosing import REFERENCE, Choosing
from fdgjax.sweeps.comparison import nested, percent
from fdgjax.sweeps.status import failure_of, summary_of
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import write_text

CHOICE = "choice.json"
"""The file of a choice in its folder."""
AS_FAST = 1.1
"""Methods that take at most so many times the seconds of the fastest count as equally fast: timings vary by as much."""


class Judged(NamedTuple):
    """A candidate's results.

    scores: the figure by left-out domain, of each seed. score: of all domains. difference, error: from FedAvg, paired
    by domain and seed, positive where it is better; None for FedAvg, and without it. bytes_per_round: sent and received
    by all clients. seconds_per_round: of one seed. values: its drawn hyperparameters, empty for the config's own.
    """

    name: str
    scores: Mapping[str, Sequence[float]]
    score: float
    difference: float | None
    error: float | None
    bytes_per_round: int
    seconds_per_round: float
    values: Mapping[str, Any]


class Choice(NamedTuple):
    """A choice among methods.

    recommended: the cheapest of the indistinguishable. indistinguishable: those that cannot be told from the best,
    best first, by `fdgjax.evaluation.best_set`, with `p_value` for the hypothesis that these are equal and `p_all` for
    all candidates. interval: where the recommended method's figure on a new domain is expected with a probability of
    95 %; None for a single domain. methods: all candidates, best first. left_out: why others are none, by name.
    domains: those left out in turn. target: the domain that took no part, '' for none. figure: of each run's summary.
    by: how it becomes one score. seeds: of each run. commands: what makes the choice, and then trains.
    """

    recommended: str
    indistinguishable: list[str]
    p_value: float
    p_all: float
    interval: tuple[float, float] | None
    methods: list[Judged]
    left_out: dict[str, str]
    domains: list[str]
    target: str
    figure: str
    by: str
    seeds: list[int]
    commands: dict[str, str]

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Each method's figure by left-out domain, mean over the seeds."""
        return {one.name: {name: float(np.mean(each)) for name, each in one.scores.items()} for one in self.methods}

    def __str__(self) -> str:
        return as_markdown(self)


def read_choice(
    choosing: Choosing, cells: Sequence[Cell], out: Path, figure: str, by: str, commands: Mapping[str, str]
) -> Choice | None:
    """The choice, from the candidates whose runs are all finished; None if there is no such candidate.

    Args:
      choosing: what was to be chosen.
      cells: its runs.
      out: their folder.
      figure: a key of their summaries.
      by: a key of `SCORES`.
      commands: see `Choice`.
    """
    left_out, found = dict(choosing.unfit), dict[str, list[Mapping[str, Any]]]()
    for candidate in choosing.candidates:
        mine = [cell for cell in cells if cell.group == candidate.name]
        summaries: list[Mapping[str, Any]] = [summary_of(out, cell.name) for cell in mine]
        if all(summaries):
            found[candidate.name] = summaries
        else:
            reasons = [failure_of(out, cell.name).partition("\n")[0] for cell in mine]
            left_out[candidate.name] = next(filter(None, reasons), "not finished")
    if not found:
        return None
    names = list(found)
    seeds = seeds_in(found[names[0]][0])
    values = np.array([[figures(one, figure) for one in found[name]] for name in names], np.float64)
    check_figure(values, figure)
    sign = 1.0 if larger_is_better(figure) else -1.0
    judged = [as_judged(choosing, name, sign, names, values, found[name], by) for name in names]
    best = best_set(sign * values, SCORES[by])
    members = [judged[i] for i in best.members]
    recommended = cheapest(members, sign)
    most = 1.0 if sign > 0 else math.inf
    return Choice(
        recommended=recommended.name,
        indistinguishable=[one.name for one in members],
        p_value=best.p_value,
        p_all=best.p_all,
        interval=prediction_interval([float(np.mean(each)) for each in recommended.scores.values()], most),
        methods=sorted(judged, key=lambda one: -sign * one.score),
        left_out=left_out,
        domains=choosing.domains,
        target=choosing.target,
        figure=figure,
        by=by,
        seeds=seeds,
        commands=dict(commands),
    )


def check_figure(values: np.ndarray, figure: str) -> None:
    """Raises a `UserError` for a figure that no run, or not every run has: a choice compares it everywhere."""
    if missing := int(np.isnan(values).sum()):
        raise UserError(
            f"choose got --figure {figure}, which {missing} of {values.size} runs lack; expected a figure that all "
            "have: a number of their summaries, which a domain without samples of every class may not give"
        )


def seeds_in(summary: Mapping[str, Any]) -> list[int]:
    """The seeds of a run."""
    return [int(seed) for seed in summary.get("per_seed", {summary.get("seed", 0): None})]


def figures(summary: Mapping[str, Any], figure: str) -> list[float]:
    """A figure of each seed of a run; NaN where it is missing."""
    each = summary.get("per_seed", {}).values() or [summary]
    return [np.nan if (value := nested(one, figure)) is None else float(value) for one in each]


def as_judged(
    choosing: Choosing,
    name: str,
    sign: float,
    names: Sequence[str],
    values: np.ndarray,
    summaries: Sequence[Mapping[str, Any]],
    by: str,
) -> Judged:
    """A candidate's results, from the figures of all, `values` `[methods, domains, seeds]`, in the order of `names`;
    sign: -1 for a figure of which smaller values are better, else 1."""
    own, difference = values[names.index(name)], None
    if REFERENCE in names and name != REFERENCE:
        difference = paired(by_pair(sign * own), by_pair(sign * values[names.index(REFERENCE)]))
    (candidate,) = (one for one in choosing.candidates if one.name == name)
    return Judged(
        name=name,
        scores={domain: list(map(float, each)) for domain, each in zip(choosing.domains, own, strict=True)},
        score=sign * float(SCORES[by](sign * own)),
        difference=difference and difference.mean,
        error=difference.error if difference and difference.freedom else None,
        bytes_per_round=max(one["bytes_up_per_round"] + one["bytes_down_per_round"] for one in summaries),
        seconds_per_round=float(np.median([one["seconds_per_round"] for one in summaries])),
        values=candidate.values,
    )


def by_pair(values: np.ndarray) -> dict[tuple[str, int], float]:
    """Figures `[domains, seeds]` by domain and seed, for `paired`."""
    return {(str(i), j): float(value) for (i, j), value in np.ndenumerate(values)}


def cheapest(members: Sequence[Judged], sign: float = 1.0) -> Judged:
    """The method with the fewest bytes; of several the fastest; of those that are about as fast the best."""
    least = min(one.bytes_per_round for one in members)
    cheap = [one for one in members if one.bytes_per_round == least]
    fastest = min(one.seconds_per_round for one in cheap)
    return max((one for one in cheap if one.seconds_per_round <= AS_FAST * fastest), key=lambda one: sign * one.score)


def write_choice(choice: Choice, out: Path) -> None:
    """Writes `choice.json` and `choice.md`."""
    content = choice._asdict() | {"scores": choice.scores, "methods": [one._asdict() for one in choice.methods]}
    write_checked_json(out / CHOICE, content)
    write_text(out / "choice.md", as_markdown(choice))


def recommended_in(out: Path) -> str:
    """The candidate that the choice in a folder recommends."""
    return str(read_checked_json(out / CHOICE)["recommended"])


def as_markdown(choice: Choice) -> str:
    """The table, best first, and what follows from it."""
    head = ["method", *choice.domains, choice.by, f"from {REFERENCE}", "MB a round", "s a round", ""]
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 2)}---|"]
    lines += [f"| {' | '.join(row(choice, one))} |" for one in choice.methods]
    return "\n".join([*lines, "", *in_words(choice)]) + "\n"


def row(choice: Choice, one: Judged) -> list[str]:
    """A method's row of the table."""
    from_reference = "" if one.difference is None else f"{100 * one.difference:+.1f}"
    if one.error is not None:
        from_reference += f" ± {100 * one.error:.1f}"
    equal = "not told from the best" if one.name in choice.indistinguishable else ""
    return [
        one.name,
        *(percent(100 * mean, None) for mean in choice.scores[one.name].values()),
        percent(100 * one.score, None),
        from_reference,
        f"{one.bytes_per_round / 1e6:.2f}",
        f"{one.seconds_per_round:.3g}",
        "**recommended**" if one.name == choice.recommended else equal,
    ]


def in_words(choice: Choice) -> list[str]:
    """What the table says, and what it does not."""
    count, equal = len(choice.methods), choice.indistinguishable
    seeds = f"{len(choice.seeds)} seed{'s' if len(choice.seeds) > 1 else ''}"
    what = "Percent" if larger_is_better(choice.figure) else "Times 100, smaller is better"
    lines = [
        f"{what}, {choice.figure} on each domain while it was left out, mean over {seeds}; ± standard error, by seeds."
    ]
    if count == 1:
        lines.append(f"{choice.recommended} is the only candidate.")
    elif len(equal) == count:
        lines.append(
            f"No difference between the {count} methods was found on these domains (p = {choice.p_all:.2g}). "
            f"Recommended: {choice.recommended}, the cheapest."
        )
    elif len(equal) == 1:
        lines.append(f"{choice.recommended} is the best on these domains: every other method is told from it.")
    else:
        lines.append(
            f"Cannot be told from the best on these domains: {', '.join(equal)} (p = {choice.p_value:.2g}). "
            f"Recommended: {choice.recommended}, the cheapest of them."
        )
    lines.append(
        "The test (sign flips, 5 % for all candidates together) speaks of other seeds on these domains; another "
        "domain may rank the methods otherwise."
    )
    return [*lines, *expected(choice), *(f"Left out: {name}: {why}." for name, why in choice.left_out.items())]


def expected(choice: Choice) -> list[str]:
    """What to expect on a new domain."""
    if choice.interval is None:
        return []
    count, unit = len(choice.domains), " %" if larger_is_better(choice.figure) else ""
    mean = float(np.mean(list(choice.scores[choice.recommended].values())))
    low, high = choice.interval
    few = {2: ": two domains say next to nothing of a third", 3: ": three domains say little of a fourth"}
    return [
        f"At a new site {choice.recommended} is expected to reach {100 * mean:.0f}{unit}, with a probability of "
        f"{100 * LEVEL:.0f} % between {100 * low:.0f} and {100 * high:.0f}{unit}, if the site is such as these {count}"
        f"{few.get(count, '')}."
    ]
