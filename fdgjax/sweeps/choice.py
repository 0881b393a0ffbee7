"""The answer of `fdgjax choose`, read from its runs: the methods that cannot be told from the best, which of them is
recommended, and what to expect on a new domain."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdgjax.evaluation.best_set import SCORES, BestSet, best_set, prediction_interval, tells_apart
from fdgjax.evaluation.figure_kinds import figure_kind
from fdgjax.evaluation.statistics import paired
from fdgjax.run.records import by_seed
from fdgjax.sweeps.cells import Cell
from fdgjax.sweeps.choice_record import Choice, Judged
from fdgjax.sweeps.choosing import REFERENCE, Choosing
from fdgjax.sweeps.comparison import nested
from fdgjax.sweeps.status import failure_line, summary_of
from fdgjax.utils.errors import UserError

AS_FAST = 1.1
"""Methods that take at most so many times the seconds of the fastest count as equally fast: timings vary by as much."""


def no_choice(cells: Sequence[Cell], out: Path) -> str:
    """Why no candidate's runs are all finished, by the first that failed."""
    reasons = ((cell.name, failure_line(out, cell.name)) for cell in cells)
    why = next((f"{name} failed: {reason}" for name, reason in reasons if reason), "some are not finished")
    return f"choose got no method of which all runs are finished; {why}"


def read_choice(
    choosing: Choosing, cells: Sequence[Cell], out: Path, figure: str, by: str, commands: Mapping[str, str]
) -> Choice | None:
    """The choice, from the candidates whose runs are all finished; None if there is no such candidate, which
    `no_choice` says.

    Args:
      choosing: what was to be chosen.
      cells: its runs.
      out: their folder.
      figure: a key of their summaries.
      by: a key of `SCORES`.
      commands: see `Choice`.

    Raises:
      UserError: a figure that no candidate's runs have.
    """
    kind, no_figure = figure_kind(figure), f"a run has no {figure}"
    left_out, found = dict(choosing.unfit), dict[str, list[Mapping[str, Any]]]()
    for candidate in choosing.candidates:
        mine = [cell for cell in cells if cell.group == candidate.name]
        summaries: list[Mapping[str, Any]] = [summary_of(out, cell.name) for cell in mine]
        reasons = [failure_line(out, cell.name) for cell in mine]
        if not all(summaries):
            left_out[candidate.name] = next(filter(None, reasons), "not finished")
        elif np.isnan([figures(one, figure) for one in summaries]).any():
            left_out[candidate.name] = no_figure
        else:
            found[candidate.name] = summaries
    if not found and no_figure in left_out.values():
        raise UserError(f"no method's runs all have the figure '{figure}' in summary.json; expected one that they have")
    if not found:
        return None
    names = list(found)
    seeds = list(by_seed(found[names[0]][0]))
    values = np.array([[figures(one, figure) for one in found[name]] for name in names], np.float64)
    scores = kind.sign * SCORES[by](kind.sign * values)
    judged = [as_judged(choosing, i, names, values, scores, found[name]) for i, name in enumerate(names)]
    # Of the worst domain's seeds alone there are too few for a test.
    best = best_set(kind.sign * values) if by == "mean" else BestSet((int(np.argmax(kind.sign * scores)),), None, None)
    members = [judged[i] for i in best.members]
    equal = not_behind(kind.sign * values, best.members)
    recommended = cheapest([judged[i] for i in equal], kind.sign)
    return Choice(
        recommended=recommended.name,
        indistinguishable=[one.name for one in members],
        p_value=best.p_value,
        p_all=best.p_all,
        interval=prediction_interval(
            [float(np.mean(each)) for each in recommended.scores.values()], kind.lowest, kind.highest
        ),
        methods=sorted(judged, key=lambda one: -kind.sign * one.score),
        left_out=left_out,
        domains=choosing.domains,
        target=choosing.target,
        figure=figure,
        by=by,
        seeds=seeds,
        seconds=sum(one.get("wall_seconds", 0.0) for summaries in found.values() for one in summaries),
        commands=dict(commands),
        behind=[names[i] for i in best.members if i not in equal],
        largest_class=largest_class(choosing.domains, found[names[0]]) if figure == "ood_accuracy" else {},
    )


def largest_class(domains: Sequence[str], summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The share of each left-out domain's largest class, from the runs of one method; empty where it was not kept."""
    shares = [one.get("target_majority") for one in summaries]
    return {domain: share for domain, share in zip(domains, shares, strict=True) if share is not None}


def figures(summary: Mapping[str, Any], figure: str) -> list[float]:
    """A figure of each seed of a run; NaN where it is missing."""
    each = (nested(own, figure) for own in by_seed(summary).values())
    return [np.nan if value is None else float(value) for value in each]


def as_judged(
    choosing: Choosing,
    place: int,
    names: Sequence[str],
    values: np.ndarray,
    scores: np.ndarray,
    summaries: Sequence[Mapping[str, Any]],
) -> Judged:
    """The results of the candidate `names[place]`, from figures `[methods, domains, seeds]` and scores of all."""
    name, own, difference = names[place], values[place], None
    if REFERENCE in names and name != REFERENCE:
        difference = paired(by_pair(own), by_pair(values[names.index(REFERENCE)]))
    (candidate,) = (one for one in choosing.candidates if one.name == name)
    return Judged(
        name=name,
        scores={domain: list(map(float, each)) for domain, each in zip(choosing.domains, own, strict=True)},
        score=float(scores[place]),
        difference=difference and difference.mean,
        error=difference.error if difference and difference.freedom else None,
        bytes_per_round=max(one["bytes_up_per_round"] + one["bytes_down_per_round"] for one in summaries),
        seconds_per_round=float(np.median([one["seconds_per_round"] for one in summaries])),
        values=candidate.values,
    )


def by_pair(values: np.ndarray) -> dict[tuple[str, int], float]:
    """Figures `[domains, seeds]` by domain and seed, for `paired`."""
    return {(str(i), j): float(value) for (i, j), value in np.ndenumerate(values)}


def not_behind(values: np.ndarray, members: Sequence[int]) -> list[int]:
    """The members of `best_set`, best first, that may be recommended instead of its first one: those whose paired
    difference from it, as in a sweep's ranking, has an interval that does not lie below 0. `best_set` tests all members
    together, and a noisy one keeps in the set what, compared with the first alone, is clearly worse. Where there is no
    interval, or there are too few pairs to tell anything apart, the first alone: that no difference can be found says
    nothing for a cheaper method.

    Args:
      values: `[methods, domains, seeds]`, larger ones better.
      members: their indices.
    """
    first, *others = members
    differences = [paired(by_pair(values[i]), by_pair(values[first])) for i in others if tells_apart(values[i].size)]
    known = zip(others, differences, strict=False)
    return [first, *(i for i, one in known if one and one.words in ("ahead", "undecided", "equal"))]


def cheapest(members: Sequence[Judged], sign: int = 1) -> Judged:
    """The method with the fewest bytes; of several the fastest; of those that are about as fast the best, the one with
    the highest score, or with `sign=-1` the lowest."""
    least = min(one.bytes_per_round for one in members)
    cheap = [one for one in members if one.bytes_per_round == least]
    fastest = min(one.seconds_per_round for one in cheap)
    return max((one for one in cheap if one.seconds_per_round <= AS_FAST * fastest), key=lambda one: sign * one.score)
