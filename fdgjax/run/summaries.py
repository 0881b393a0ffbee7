"""The results of training: a summary for each seed and one over all seeds, whether or not the run has a folder."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fdgjax.evaluation.metrics import Record
from fdgjax.experiments import Experiment, image_facts, split_facts
from fdgjax.run.loop import images_per_round
from fdgjax.run.memory_check import peak_bytes
from fdgjax.run.records import summarise, summarise_seeds


class Timings(NamedTuple):
    """Seconds of the whole run, seconds of a round (the median), and the memory predicted for a round in bytes."""

    seconds: float
    round_seconds: float
    predicted_bytes: int


def summaries(experiment: Experiment, records: Sequence[Sequence[Record]], timings: Timings) -> list[dict[str, Any]]:
    """Each seed's summary.

    Seeds trained in one program share its wall time and memory; members of a family divide its wall time.

    Args:
      experiment: what was trained.
      records: each seed's, one per round.
      timings: of the whole run.
    """
    config, images = experiment.config, images_per_round(experiment)
    share = config.seeds / len(experiment.seeds)
    program = {
        "wall_seconds": timings.seconds * share,
        "seconds_per_round": timings.round_seconds / len(experiment.seeds),
        "predicted_memory_bytes": timings.predicted_bytes,
        "peak_memory_bytes": peak_bytes(),
    }
    return [
        summarise(
            of_seed,
            config.selection,
            experiment.facts
            | split_facts(experiment.data, how, part)
            | image_facts(experiment.data, part)
            | {"seed": seed},
            {"images_per_second": own / (timings.round_seconds * share), **program},
        )
        for seed, how, part, of_seed, own in zip(
            experiment.seeds, experiment.split_specs, experiment.parts, records, images, strict=True
        )
    ]


def of_all_seeds(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary over all of a run's seeds, made from each seed's summary; for a single seed, its own."""
    if len(each) == 1:
        return dict(each[0])
    together = {"images_per_second": sum(one["images_per_second"] for one in each)}
    return summarise_seeds(each, {**each[0], **together})
