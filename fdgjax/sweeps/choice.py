"""The answer of `fdgjax choose`, read from its runs: the methods that cannot be told from the best, which of them is
recommended, and what to expect on a new domain."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fdgjax.evaluation.best_set import SCORES, best_set, prediction_interval
from fdgjax.evaluation.figure_kinds import figure_kind
from fdgjax.evaluation.statistics import LEVEL, paired
from fdgjax.sweeps.cells import Cell
from fdgjax.sweeps.choosing import REFERENCE, Choosing
from fdgjax.sweeps.comparison import nested
from fdgjax.sweeps.status import failure_of, summary_of
from fdgjax.sweeps.work import duration
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import write_text
from fdgjax.utils.markdown import markdown_table

EQUAL, BEHIND = "not told from the best", "behind the first"
"""What is said of a method in the set that cannot be told from the best; see `Choice`."""
CHOICE = "choice.json"
"""The file of a choice in its folder."""
AS_FAST = 1.1
"""Methods that take at most so many times the seconds of the fastest count as equally fast: timings vary by as much."""


class Judged(NamedTuple):
    """A candidate's results.

    scores: the figure by left-out domain, of each seed. score: of all domains. difference, error: the figure minus
    FedAvg's, paired by domain and seed, so negative where a smaller figure is better and it is better; None for FedAvg,
    and without it. bytes_per_round: sent and received by all clients. seconds_per_round: of one seed. values: its drawn
    hyperparameters, empty for the config's own.
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

    recommended: the cheapest of the indistinguishable that are not `behind`. indistinguishable: those that cannot
    be told from the best, best first, by `fdgjax.evaluation.best_set`, with `p_value` for the hypothesis that these
    are equal and `p_all` for all candidates. behind: those of them that are worse than the first of them, each
    compared with it alone; see `not_behind`. interval: where the recommended method's figure on a new domain is
    expected with a probability of 95 %; None for a single domain. methods: all candidates, best first. left_out:
    why others are none, by name. domains: those left out in turn. target: the domain that took no part, '' for
    none. figure: of each run's summary. by: how it becomes one score. seeds: of each run. commands: what makes the
    choice, and then trains. seconds: that the runs of these methods took in all, each its share of its program's; 0
    where they were not kept. largest_class: the accuracy of a constant answer, the share of each left-out domain's
    largest class; empty for other figures than ood_accuracy.
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
    seconds: float = 0.0
    behind: Sequence[str] = ()
    largest_class: Mapping[str, float] = MappingProxyType({})

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Each method's figure by left-out domain, mean over the seeds."""
        return {one.name: {name: float(np.mean(each)) for name, each in one.scores.items()} for one in self.methods}

    def __str__(self) -> str:
        return as_markdown(self)


def no_choice(cells: Sequence[Cell], out: Path) -> str:
    """Why no candidate's runs are all finished, by the first that failed."""
    reasons = ((cell.name, failure_of(out, cell.name).partition("\n")[0]) for cell in cells)
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
        reasons = [failure_of(out, cell.name).partition("\n")[0] for cell in mine]
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
    seeds = seeds_in(found[names[0]][0])
    values = np.array([[figures(one, figure) for one in found[name]] for name in names], np.float64)
    scores = kind.sign * SCORES[by](kind.sign * values)
    judged = [as_judged(choosing, i, names, values, scores, found[name]) for i, name in enumerate(names)]
    best = best_set(kind.sign * values, SCORES[by])
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


def seeds_in(summary: Mapping[str, Any]) -> list[int]:
    """The seeds of a run."""
    return [int(seed) for seed in summary.get("per_seed", {summary.get("seed", 0): None})]


def largest_class(domains: Sequence[str], summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The share of each left-out domain's largest class, from the runs of one method; empty where it was not kept."""
    shares = [one.get("target_majority") for one in summaries]
    return {domain: share for domain, share in zip(domains, shares, strict=True) if share is not None}


def figures(summary: Mapping[str, Any], figure: str) -> list[float]:
    """A figure of each seed of a run; NaN where it is missing."""
    each = summary.get("per_seed", {}).values() or [summary]
    return [np.nan if (value := nested(one, figure)) is None else float(value) for one in each]


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
    """The members of `best_set`, best first, that are not behind its first one: the interval of their paired
    difference, as in a sweep's ranking, does not lie below 0. `best_set` tests all members together, and a noisy one
    keeps in the set what, compared with the first alone, is clearly worse.

    Args:
      values: `[methods, domains, seeds]`, larger ones better. members: their indices.
    """
    first = by_pair(values[members[0]])
    differences = [paired(by_pair(values[i]), first) for i in members[1:]]
    return [members[0], *(i for i, one in zip(members[1:], differences, strict=True) if one and one.words != "behind")]


def cheapest(members: Sequence[Judged], sign: int = 1) -> Judged:
    """The method with the fewest bytes; of several the fastest; of those that are about as fast the best, the one with
    the highest score, or with `sign=-1` the lowest."""
    least = min(one.bytes_per_round for one in members)
    cheap = [one for one in members if one.bytes_per_round == least]
    fastest = min(one.seconds_per_round for one in cheap)
    return max((one for one in cheap if one.seconds_per_round <= AS_FAST * fastest), key=lambda one: sign * one.score)


def write_choice(choice: Choice, out: Path) -> None:
    """Writes `choice.json` and `choice.md`."""
    content = choice._asdict() | {"scores": choice.scores, "methods": [one._asdict() for one in choice.methods]}
    write_checked_json(out / CHOICE, content)
    write_text(out / "choice.md", as_markdown(choice))


def kept_choice(file: Path) -> Choice:
    """What `write_choice` wrote; raises a `Damaged` if the file has changed since."""
    held = read_checked_json(file)
    known = {name: held[name] for name in Choice._fields if name in held}
    return Choice(**known | {"methods": [Judged(**one) for one in held["methods"]]})


def as_markdown(choice: Choice) -> str:
    """The table, best first, and what follows from it."""
    head = ["method", *choice.domains, choice.by, f"from {REFERENCE}", "MB a round", "s a round", ""]
    lines = markdown_table(head, [row(choice, one) for one in choice.methods], right=head[1:-1])
    return "\n".join([*lines, "", *in_words(choice)]) + "\n"


def row(choice: Choice, one: Judged) -> list[str]:
    """A method's row of the table."""
    kind = figure_kind(choice.figure)
    from_reference = "" if one.difference is None else kind.written(one.difference, "+")
    if one.error is not None:
        from_reference += f" ± {kind.written(one.error)}"
    return [
        one.name,
        *(kind.written(mean) for mean in choice.scores[one.name].values()),
        kind.written(one.score),
        from_reference,
        f"{one.bytes_per_round / 1e6:.2f}",
        f"{one.seconds_per_round:.3g}",
        "**recommended**" if one.name == choice.recommended else verdict(choice, one.name),
    ]


def verdict(choice: Choice, name: str) -> str:
    """What the tests say of a method; '' if it can be told from the best."""
    return "" if name not in choice.indistinguishable else BEHIND if name in choice.behind else EQUAL


def recommendation(choice: Choice) -> str:
    """The recommended one of several methods, and why."""
    if not choice.behind:
        return f" Recommended: {choice.recommended}, the cheapest of them."
    first, *others = choice.indistinguishable
    if list(choice.behind) == others:
        return f" Compared with it alone, each is behind {first}, which is recommended."
    behind = f"Behind {first}, compared with it alone: {', '.join(choice.behind)}."
    return f" {behind} Recommended: {choice.recommended}, the cheapest of the others."


def in_words(choice: Choice) -> list[str]:
    """What the table says, and what it does not."""
    count, equal = len(choice.methods), choice.indistinguishable
    seeds = f"{len(choice.seeds)} seed{'s' if len(choice.seeds) > 1 else ''}"
    kind = figure_kind(choice.figure)
    what, better = "Percent, " if kind.unit else "", "" if kind.sign > 0 else " (smaller is better)"
    lines = [
        f"{what}{choice.figure}{better} of each domain while it was left out, mean over {seeds}; ± standard error, by "
        "seeds."
    ]
    if choice.largest_class:
        shares = ", ".join(f"{name} {kind.written(share)}" for name, share in choice.largest_class.items())
        lines.append(f"The largest class alone, whatever the sample, reaches {shares}.")
    if count == 1:
        lines.append(f"{choice.recommended} is the only candidate.")
    elif len(equal) == count:
        lines.append(f"No difference between the {count} methods was found on these domains (p = {choice.p_all:.2g}).")
    elif len(equal) == 1:
        lines.append(f"{choice.recommended} is the best on these domains: every other method is told from it.")
    else:
        lines.append(f"Cannot be told from the best on these domains: {', '.join(equal)} (p = {choice.p_value:.2g}).")
    if len(equal) > 1:
        lines[-1] += recommendation(choice)
    lines.append(
        "The test (sign flips, 5 % for all candidates together) speaks of other seeds on these domains; another "
        "domain may rank the methods otherwise."
    )
    lines += expected(choice)
    if choice.target:
        lines.append(f"{choice.target} took no part in the choice.")
    if choice.seconds:
        runs = f"{count * len(choice.domains)} runs of {seeds}"
        lines.append(f"These {runs} took {duration(choice.seconds)} in all.")
    return [*lines, *(f"Left out: {name}: {why}." for name, why in choice.left_out.items())]


def expected(choice: Choice) -> list[str]:
    """What to expect on a new domain."""
    if choice.interval is None:
        return []
    count = len(choice.domains)
    mean = float(np.mean(list(choice.scores[choice.recommended].values())))
    kind = figure_kind(choice.figure)
    low, high = map(kind.briefly, choice.interval)
    unit = f" {kind.unit}" if kind.unit else ""
    few = {2: ": two domains say next to nothing of a third", 3: ": three domains say little of a fourth"}
    return [
        f"At a new site {choice.recommended} is expected to reach {kind.briefly(mean)}{unit}, with a probability of "
        f"{100 * LEVEL:.0f} % between {low} and {high}{unit}, if the site is such as these {count}"
        f"{few.get(count, '')}."
    ]
