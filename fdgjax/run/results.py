"""What training has come to: the summaries of a run's seeds and of all of them, with or without a folder."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fdgjax.building import Experiment
from fdgjax.config import seeds_of
from fdgjax.evaluation.metrics import Record
from fdgjax.records import summarise, summarise_seeds
from fdgjax.run.memory import peak_bytes
from fdgjax.run.training import images_per_round


class Timings(NamedTuple):
    """Seconds of the whole run, seconds of a round (the median), and the bytes that were predicted for a round."""

    seconds: float
    round_seconds: float
    predicted_bytes: int


def summaries(
    experiment: Experiment, records: Sequence[Sequence[Record]], timings: Timings, more: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Each seed's summary, and that of all seeds; a single seed's own.

    A seed's timings are those of the program it shared with the others.

    Args:
      experiment: what was trained.
      records: of each seed's rounds.
      timings: of the run.
      more: further facts.
    """
    config, images, facts = experiment.config, images_per_round(experiment), {**experiment.facts, **more}
    program = {
        "wall_seconds": timings.seconds,
        "predicted_memory_bytes": timings.predicted_bytes,
        "peak_memory_bytes": peak_bytes(),
    }
    each = [
        summarise(
            of_seed,
            config.selection,
            facts | {"seed": seed},
            {"images_per_second": own / timings.round_seconds, **program},
        )
        for seed, of_seed, own in zip(seeds_of(config), records, images, strict=True)
    ]
    if len(each) == 1:
        return each, each[0]
    return each, summarise_seeds(each, {"images_per_second": sum(images) / timings.round_seconds, **program})
