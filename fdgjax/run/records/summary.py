"""The result of a run: facts, the selected round's figures, the figures by each selection rule, and timings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fdgjax.evaluation.metrics import Record, figure_keys, is_evaluated
from fdgjax.evaluation.selection import ledger, reported
from fdgjax.evaluation.statistics import spread

TIMINGS = ("images_per_second", "wall_seconds", "seconds_per_round", "predicted_memory_bytes", "peak_memory_bytes")
"""Keys of a summary that differ between two runs of the same experiment: speed, time (a round's is of one seed, its
share of those trained side by side) and memory."""


DROPPED = ("updates_dropped", "updates")
"""Keys of a summary where updates were left out, which are sums over the seeds; see `dropped_updates`."""


def summarise(
    records: Sequence[Record],
    selection: str,
    facts: Mapping[str, Any],
    timings: Mapping[str, float],
) -> dict[str, Any]:
    """The content of `summary.json`.

    Args:
      records: one per round; those that were evaluated carry the `figures` of their `Metrics`.
      selection: the rule that chooses the reported round.
      facts: what is known without training: method, data, sizes, bytes.
      timings: the values of `TIMINGS`.
    """
    evaluated = [record for record in records if is_evaluated(record)]
    chosen = reported(evaluated, selection)
    figures = {key: chosen[key] for key in figure_keys() if key in chosen}
    own = {**facts, **figures, **dropped_updates(records)}
    return {**own, "selection": ledger(evaluated, selection), **{k: timings[k] for k in TIMINGS}}


def dropped_updates(records: Sequence[Record]) -> dict[str, int]:
    """How many updates were not finite and left out (`config.drop_nonfinite` or a defence), of how many; empty for
    none."""
    dropped = sum(len(record.get("dropped", ())) for record in records)
    if not dropped:
        return {}
    return dict(zip(DROPPED, (dropped, sum(len(record["participants"]) for record in records)), strict=True))


def summarise_seeds(summaries: Sequence[Mapping[str, Any]], timings: Mapping[str, float]) -> dict[str, Any]:
    """The content of `summary.json` for several seeds, from each seed's summary.

    Each figure is the mean over the seeds; `std` has the sample standard deviations (ddof = 1), `per_seed` each seed's
    own figures and selection. A domain that is missing from some seeds' held-out data is averaged over the others, and
    so is a figure that has no value for some seeds.
    """
    first = summaries[0]
    own = (*figure_keys(), "selection")
    facts = {key: value for key, value in first.items() if key not in (*own, *TIMINGS, *DROPPED, "seed")}
    dropped = {key: sum(summary.get(key, 0) for summary in summaries) for key in DROPPED}
    return {
        **facts,
        **(dropped if dropped[DROPPED[0]] else {}),
        "seeds": [summary["seed"] for summary in summaries],
        **mean_figures(summaries),
        "std": reduce_figures(summaries, deviation),
        "std_is": "sample standard deviation over the seeds (ddof=1)",
        "selection": {"used": first["selection"]["used"]},
        "per_seed": {
            str(summary["seed"]): {key: summary[key] for key in own if key in summary} for summary in summaries
        },
        **{key: timings[key] for key in TIMINGS},
    }


def by_seed(summary: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Each seed's own figures in a run's summary; that of a single seed is the seed's own."""
    each = summary.get("per_seed") or {summary.get("seed", 0): summary}
    return {int(seed): own for seed, own in each.items()}


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation; None of a single value."""
    found = spread(values)
    return found and found.std


def mean_figures(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds of the figures in `figure_keys`."""
    return reduce_figures(seeds, lambda values: float(np.mean(values)))


def reduce_figures(
    seeds: Sequence[Mapping[str, Any]], reduce: Callable[[Sequence[float]], float | None]
) -> dict[str, Any]:
    """Each figure that any seed has, reduced over the seeds that have it; dicts and lists entry by entry."""

    def reduced(values: Sequence[Any]) -> Any:
        if isinstance(values[0], list):
            return [reduced(each) for each in zip(*values, strict=True)]
        if not isinstance(values[0], Mapping):
            return reduce(values)
        names = list(dict.fromkeys(name for value in values for name in value))
        return {name: reduced([value[name] for value in values if name in value]) for name in names}

    there = {key: [seed[key] for seed in seeds if key in seed] for key in figure_keys()}
    return {key: reduced(values) for key, values in there.items() if values}
