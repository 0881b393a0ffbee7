"""How sets and distances do on domains that were left out in turn: of a run on all domains its own figures say nothing
about a further one, but runs with the same settings and a domain unseen do."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdgjax.experiments import Experiment
from fdgjax.inference.safeguards import Safeguards, has_labels, safeguards_of
from fdgjax.inference.trained_run import trained_seed
from fdgjax.run.records import Workdir
from fdgjax.run.reopen import rebuilt
from fdgjax.utils.checksums import Damaged, read_checked_json, sha256, write_checked_json

LOGGER = logging.getLogger(__name__)
FILE = "left_out.json"
"""Kept in the folder of the run on all domains."""

LeftOut = Mapping[str, Mapping[str, Mapping[str, float | None]]]
"""By domain, then `plain` and `calibrated`: the figures of `fdgjax.inference.safeguards.figures_of`."""


def keep_left_out(path: Path, runs: Mapping[str, Path], data_dir: str = "") -> None:
    """Measures the figures of left-out domains, each a mean over the seeds, and keeps them in a run's folder, unless
    those of the same runs are there, or the clients have no labels.

    Args:
      path: the folder of the run.
      runs: for each domain the folder of a finished run with the same settings, in which it was unseen.
      data_dir: the folder of the runs' data, if it has moved.

    Raises:
      UserError: no run, no checkpoint, or no data.
    """
    of = {domain: sha256(Workdir(run).summary) for domain, run in runs.items()}
    if kept(path).get("summaries") == of:
        return
    found: dict[str, Any] = {}
    for domain, run in runs.items():
        experiment = rebuilt(run, data_dir)
        each = [guards for i in range(len(experiment.seeds)) if (guards := measured(experiment, run, i)) is not None]
        if not each:
            return
        found[domain] = {kind: mean_of([one.figures[kind]["unseen"] for one in each]) for kind in each[0].figures}
    write_checked_json(path / FILE, {"summaries": of, "figures": found})


def measured(experiment: Experiment, run: Path, index: int) -> Safeguards | None:
    """The safeguards of one seed's models for unseen domains; None if the clients have no labels."""
    trained = trained_seed(experiment, run, index)
    return safeguards_of(trained, trained.unseen_variables()) if has_labels(trained) else None


def mean_of(figures: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The mean of each figure over those that have it; None where none has."""
    known = {key: [one[key] for one in figures if one[key] is not None] for key in figures[0]}
    return {key: float(np.mean(np.array(values, float))) if values else None for key, values in known.items()}


def read_left_out(path: Path) -> LeftOut:
    """The figures that `keep_left_out` kept in a run's folder, if any."""
    return dict(kept(path).get("figures", {}))


def kept(path: Path) -> dict[str, Any]:
    """What `keep_left_out` wrote; empty for nothing, and, with a warning, for a damaged file."""
    if not (path / FILE).is_file():
        return {}
    try:
        return read_checked_json(path / FILE)
    except Damaged as error:
        LOGGER.warning(f"{error}; it is left out")
        return {}
