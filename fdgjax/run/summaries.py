"""What training has come to: the summaries of a run's seeds and of all of them, with or without a folder."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fdgjax.evaluation.metrics import Record
from fdgjax.experiments import Experiment
from fdgjax.run.loop import images_per_round
from fdgjax.run.memory_check import peak_bytes
from fdgjax.run.records import summarise, summarise_seeds


class Timings(NamedTuple):
    """Seconds of the whole run, seconds of a round (the median), and the bytes that were predicted for a round."""

    seconds: float
    round_seconds: float
    predicted_bytes: int


def summaries(experiment: Experiment, records: Sequence[Sequence[Record]], timings: Timings) -> list[dict[str, Any]]:
    """Each seed's summary.

    A seed's timings are those of the program it shared with the others.

    Args:
      experiment: what was trained.
      records: of each seed's rounds.
      timings: of the run.
    """
    config, images = experiment.config, images_per_round(experiment)
    program = {
        "wall_seconds": timings.seconds,
        "predicted_memory_bytes": timings.predicted_bytes,
        "peak_memory_bytes": peak_bytes(),
    }
    return [
        summarise(
            of_seed,
            config.selection,
            experiment.facts | {"seed": seed},
            {"images_per_second": own / timings.round_seconds, **program},
        )
        for seed, of_seed, own in zip(experiment.seeds, records, images, strict=True)
    ]


def of_all_seeds(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of all of a run's seeds from that of each; a single seed's own."""
    if len(each) == 1:
        return dict(each[0])
    together = {"images_per_second": sum(one["images_per_second"] for one in each)}
    return summarise_seeds(each, {**each[0], **together})
