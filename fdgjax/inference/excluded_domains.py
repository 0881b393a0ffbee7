"""How a run's models for unseen domains do on domains that took no part in it (`config.data.excluded`)."""

from pathlib import Path

import numpy as np

from fdgjax.evaluation.features import classes_of_rows
from fdgjax.experiments import outline_of
from fdgjax.inference.kept_rounds import kept_state
from fdgjax.inference.trained_run import TrainedModels, unstacked
from fdgjax.run.reopen import rebuilt
from fdgjax.utils.checksums import read_checked_json, write_checked_json

FILE = "excluded.json"
"""Kept in a run's folder, so that it is computed once."""


def excluded_accuracies(run: Path, data_dir: str = "") -> dict[str, dict[str, float]]:
    """The accuracy on all images of each excluded domain, by seed and domain: of each model for unseen domains, after
    the round that predicts by default, and their mean.

    Args:
      run: the folder of a finished run.
      data_dir: folder of the data, if it has moved since the run.

    Raises:
      UserError: no run, no checkpoint, or no data.
    """
    if (run / FILE).is_file():
        return dict(read_checked_json(run / FILE))
    experiment = rebuilt(run, data_dir)
    data, outline = experiment.data, outline_of(experiment)
    rows = [np.flatnonzero(data.domains == data.domain_names.index(name)) for name in experiment.sharings[0].excluded]
    models = []
    for index in range(len(experiment.seeds)):
        state, records = kept_state(experiment, run, index)
        models.append(unstacked(TrainedModels(outline, state, index, records).unseen_variables()))
    evaluated = [(one, own) for of_seed in models for own in rows for one in of_seed]
    size = experiment.config.eval_batch_size
    answers = iter(classes_of_rows(experiment.model, experiment.federation, evaluated, size))
    found = {
        str(seed): {
            name: float(np.mean([np.mean(next(answers) == data.labels[own]) for _ in of_seed]))
            for name, own in zip(experiment.sharings[0].excluded, rows, strict=True)
        }
        for seed, of_seed in zip(experiment.seeds, models, strict=True)
    }
    write_checked_json(run / FILE, found)
    return found
