"""The result of a run: facts, figures of the selected round, the ledger of selections, and timings."""

from collections.abc import Mapping, Sequence
from typing import Any

from fdgjax.evaluation.metrics import Metrics
from fdgjax.registry import lookup
from fdgjax.selection import SELECTIONS, ledger

TIMINGS = ("images_per_second", "wall_seconds", "predicted_memory_bytes", "peak_memory_bytes")
"""Keys of a summary that differ between two runs of the same experiment: what it took."""


def summarise(
    records: Sequence[Mapping[str, Any]],
    selection: str,
    facts: Mapping[str, Any],
    timings: Mapping[str, float],
) -> dict[str, Any]:
    """The content of `summary.json`.

    Args:
      records: one per round; those that were evaluated carry the fields of `Metrics`.
      selection: the rule that chooses the reported round.
      facts: what is known without training: method, data, sizes, bytes.
      timings: the values of `TIMINGS`.
    """
    evaluated = [record for record in records if "id_accuracy" in record]
    chosen = lookup("selection", selection, SELECTIONS).choose(evaluated)
    figures = {key: chosen[key] for key in Metrics._fields}
    return {**facts, **figures, "selection": ledger(evaluated, selection), **{k: timings[k] for k in TIMINGS}}
