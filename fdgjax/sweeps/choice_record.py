"""A choice among methods as `fdgjax choose` keeps it and says it in words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fdgjax.evaluation.best_set import tells_apart
from fdgjax.evaluation.figure_kinds import figure_kind
from fdgjax.evaluation.statistics import LEVEL
from fdgjax.sweeps.choosing import REFERENCE
from fdgjax.sweeps.work import duration
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.files import write_text
from fdgjax.utils.markdown import markdown_table

EQUAL, BEHIND = "not told from the best", "behind the first"
"""What is said of a method in the set that cannot be told from the best; see `Choice`."""
CHOICE = "choice.json"
"""The file of a choice in its folder."""


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
    are equal and `p_all` for all candidates; the best alone, without p-values, by another score than the mean. behind:
    those of them that are not recommended instead of the first, each
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
    p_value: float | None
    p_all: float | None
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
    difference = f"{'' if choice.by == 'mean' else 'mean, '}from {REFERENCE}"
    head = ["method", *choice.domains, choice.by, difference, "MB a round", "s a round", ""]
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
    if name not in choice.indistinguishable:
        return ""
    return BEHIND if name in choice.behind and not untold(choice) else EQUAL


def untold(choice: Choice) -> str:
    """Why no method can be told to be behind another; '' if some can."""
    if not tells_apart(pairs := len(choice.domains) * len(choice.seeds)):
        return f"{pairs} pairs of domain and seed cannot tell methods apart"
    return "One seed cannot say which of them are behind" if len(choice.seeds) == 1 else ""


def recommendation(choice: Choice) -> str:
    """The recommended one of several methods, and why."""
    if why := untold(choice):
        return f" {why}: recommended is the first; try more seeds."
    if not choice.behind:
        return f" Recommended: {choice.recommended}, the cheapest of them."
    first, *others = choice.indistinguishable
    if list(choice.behind) == others:
        return f" Compared with it alone, each is behind {first}, which is recommended."
    behind = f"Behind {first}, compared with it alone: {', '.join(choice.behind)}."
    return f" {behind} Recommended: {choice.recommended}, the cheapest of the others."


def in_words(choice: Choice) -> list[str]:
    """What the table says, and what it does not."""
    count = len(choice.methods)
    seeds = f"{len(choice.seeds)} seed{'s' if len(choice.seeds) > 1 else ''}"
    kind = figure_kind(choice.figure)
    what, better = "Percent, " if kind.unit else "", "" if kind.sign > 0 else " (smaller is better)"
    errors = "; ± standard error, by seeds" if any(one.error is not None for one in choice.methods) else ""
    lines = [f"{what}{choice.figure}{better} of each domain while it was left out, mean over {seeds}{errors}."]
    if choice.largest_class:
        shares = ", ".join(f"{name} {kind.written(share)}" for name, share in choice.largest_class.items())
        lines.append(f"The largest class alone, whatever the sample, reaches {shares}.")
    lines += [f"{choice.recommended} is the only candidate."] if count == 1 else tested(choice)
    lines += expected(choice)
    if choice.target:
        lines.append(f"{choice.target} took no part in the choice.")
    if choice.seconds:
        runs = f"{count * len(choice.domains)} runs of {seeds}"
        lines.append(f"These {runs} took {duration(choice.seconds)} in all.")
    return [*lines, *(f"Left out: {name}: {why}." for name, why in choice.left_out.items())]


def tested(choice: Choice) -> list[str]:
    """What was found of the differences between several methods, and of whom that speaks."""
    count, equal = len(choice.methods), choice.indistinguishable
    if choice.p_value is None or choice.p_all is None:
        return [
            f"{choice.recommended} is recommended as the best on its worst domain. Whether that is chance is not "
            "tested: the seeds of a single domain are too few."
        ]
    if len(equal) == count:
        found = f"No difference between the {count} methods was found on these domains (p = {choice.p_all:.2g})."
    elif len(equal) == 1:
        found = f"{choice.recommended} is the best on these domains: every other method is told from it."
    else:
        found = f"Cannot be told from the best on these domains: {', '.join(equal)} (p = {choice.p_value:.2g})."
    return [
        found + (recommendation(choice) if len(equal) > 1 else ""),
        "The test (sign flips, 5 % for all candidates together) speaks of other seeds on these domains; another "
        "domain may rank the methods otherwise.",
    ]


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
