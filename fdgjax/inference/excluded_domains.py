"""How a run's models for unseen domains do on domains that took no part in it (`config.data.excluded`)."""

from pathlib import Path

import numpy as np

from fdgjax.data.protocol_parts import domains_in_use, unseen_samples
from fdgjax.inference.trained_run import trained_seed, unstacked
from fdgjax.run.records import Workdir
from fdgjax.run.reopen import rebuilt
from fdgjax.utils.checksums import read_checked_json, sha256, write_checked_json

FILE = "excluded.json"
"""Kept in a run's folder, so that it is computed once for each summary: a continued run has another one."""


def excluded_accuracies(run: Path, data_dir: str = "") -> dict[str, dict[str, float]]:
    """The accuracy on each excluded domain as if it were the unseen one, by seed and domain: of each model for unseen
    domains, after the round that predicts by default, and their mean. Of given splits without one of its samples there
    is none.

    Args:
      run: the folder of a finished run.
      data_dir: folder of the data, if it has moved since the run.

    Raises:
      UserError: no run, no checkpoint, or no data.
    """
    of = sha256(Workdir(run).summary)
    kept = read_checked_json(run / FILE) if (run / FILE).is_file() else {}
    if kept.get("summary") == of:
        return dict(kept["accuracy"])
    experiment = rebuilt(run, data_dir)
    data, how = experiment.data, experiment.split_specs[0]
    used = np.unique(domains_in_use(data))
    excluded = [name for name in how.excluded if data.domain_names.index(name) in used]
    rows = [unseen_samples(data, how._replace(target=name))[0] for name in excluded]
    found = {}
    for index, seed in enumerate(experiment.seeds):
        trained = trained_seed(experiment, run, index)
        models = unstacked(trained.unseen_variables())
        answers = iter(trained.classes([(one, own) for own in rows for one in models]))
        found[str(seed)] = {
            name: float(np.mean([np.mean(next(answers) == data.labels[own]) for _ in models]))
            for name, own in zip(excluded, rows, strict=True)
        }
    write_checked_json(run / FILE, {"summary": of, "accuracy": found})
    return found
