"""UAP's tables: SSFL and UAP with one domain at the server and another one unseen, beside the paper's figures."""

from collections.abc import Mapping, Sequence

import numpy as np

from fdgjax.evaluation.statistics import of_seeds, paired
from fdgjax.sweeps.comparison import ComparisonRow
from fdgjax.utils.markdown import markdown_table
from launch.curve_tables import values_of
from launch.kept import EVIDENCE, KeptCell, compared_in, kept_cells

BASELINE, METHOD, FIGURE = "ssfl", "uap", "ood_accuracy"


def pairs_table(_: str) -> str:
    """Both methods' accuracy on the unseen domain by server and test domain, the paper's in brackets, in percent; then
    means over the pairs that have both, what the method gains over its baseline, and verdicts."""
    rows = {row.name: row for evidence in EVIDENCE if evidence.pairs for _, row in compared_in(evidence)}
    parts = [name.split("-") for name in rows]
    domains = sorted({domain for _, *pair in parts for domain in pair}, key=lambda name: int(name[1:]))
    written: list[list[str]] = []
    for server in domains:
        cells = [
            " / ".join(beside(rows, f"{method}-{server}-{test}") for method in (BASELINE, METHOD)) for test in domains
        ]
        written.append([server, *("" if cell == " / " else cell for cell in cells)])
    both = [pair for method, *pair in parts if method == METHOD and "-".join([BASELINE, *pair]) in rows]
    found = [[rows["-".join([method, *pair])] for pair in both] for method in (BASELINE, METHOD)]
    table = markdown_table(["server", *(f"test {domain}" for domain in domains)], written)
    kept = [cell for evidence in EVIDENCE if evidence.pairs for cell in kept_cells(evidence.folder)]
    return "\n".join([*table, "", *summary(*found), by_seed(kept), ""])


def beside(rows: Mapping[str, ComparisonRow], name: str) -> str:
    """Our figure with the paper's in brackets; nothing where it was not run."""
    row = rows.get(name)
    return f"{row.ours:.1f} ({row.paper:.1f})" if row else ""


def summary(baseline: Sequence[ComparisonRow], method: Sequence[ComparisonRow]) -> list[str]:
    """What the pairs say together.

    Args:
      baseline: its figures.
      method: of the same pairs in the same order.
    """
    lines = []
    for name, rows in ((BASELINE, baseline), (METHOD, method)):
        ours, paper = (np.asarray([getattr(row, who) for row in rows]) for who in ("ours", "paper"))
        verdicts = [row.verdict.partition(",")[0] for row in rows]
        lines.append(
            f"- {name.upper()}, mean of {len(rows)} pairs: {ours.mean():.1f}, the paper's {paper.mean():.1f}; by pair "
            f"{np.abs(ours - paper).mean():.1f} apart in the mean, correlation {np.corrcoef(ours, paper)[0, 1]:.2f}; "
            f"{verdicts.count('reproduced')} reproduced, {verdicts.count('worse')} worse, "
            f"{verdicts.count('better')} better."
        )
    gains = [
        np.asarray([getattr(b, who) - getattr(a, who) for a, b in zip(baseline, method, strict=True)])
        for who in ("ours", "paper")
    ]
    said = [
        f"{gain.mean():.1f} ± {gain.std(ddof=1):.1f} over the pairs, ahead on {np.sum(gain > 0)} of {len(gain)}"
        for gain in gains
    ]
    return [*lines, f"- What UAP gains over SSFL: {said[0]}; in the paper {said[1]}."]


def by_seed(cells: Sequence[KeptCell]) -> str:
    """What the method gains with each seed, in the mean of the pairs that both have, and its interval over the seeds.

    Args:
      cells: `METHOD-SERVER-TEST`.
    """
    values = values_of(cells, FIGURE)
    seeds = sorted({seed for _, seed in values[METHOD]})
    each = [(seed, paired(of_seeds(values[METHOD], [seed]), values[BASELINE])) for seed in seeds]
    said = [
        f"{100 * one.mean:.1f} with seed {seed} (ahead on {one.wins} of {one.pairs})"
        for seed, one in each
        if one is not None
    ]
    every = paired(values[METHOD], values[BASELINE])
    interval = every.interval if every else None
    known = "" if interval is None else f"; interval over the seeds {100 * interval[0]:.1f} to {100 * interval[1]:.1f}"
    return f"- By seed: {', '.join(said)}{known}."
