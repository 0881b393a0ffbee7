"""Linear probes of a trained run, with settings other than the run's own."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdgjax.config import seeds_of
from fdgjax.evaluation.evaluating import evaluate, reference_figures
from fdgjax.evaluation.linear_probe import LAYERS
from fdgjax.run.reopen import config_of, reopen
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup

PROBES = "probes.json"
"""The file in a run's folder with what `keep` keeps."""


def probe_run(run: Path, data_dir: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Probe accuracies of a run's newest state: `{"layer": ..., "round": ..., "seeds": [{what: {percent: accuracy}}]}`.

    Args:
      run: the run's folder.
      data_dir: folder of the data, if it has moved since the run.
      changes: keys of the run's `config.probe` with other values.

    Raises:
      UserError: no run, a run of a method that classifies, or an invalid setting of the probe.
    """
    config = config_of(run, data_dir)
    probing = dataclasses.replace(config.probe, **changes)
    lookup("layer", probing.layer, LAYERS)
    experiment, state, history = reopen(run, data_dir, probe=probing)
    evaluation, federation = experiment.evaluation, experiment.federation
    before = reference_figures(evaluation, experiment.init(), federation)
    if before is None:
        raise UserError(
            f"{run} is a run of '{config.method.name}', which classifies; expected one that learns without labels"
        )
    trained = evaluate(evaluation, state, federation)
    seeds = [
        {
            "seed": seed,
            "trained": after.probe_by_percent,
            "deviation": after.probe_deviation_by_percent,
            "random_encoder": first["random_encoder_probe"],
            "pixels": first["pixel_probe"],
        }
        for seed, after, first in zip(seeds_of(config), trained, before, strict=True)
    ]
    return {"layer": probing.layer, "round": len(history.records[0]), "seeds": seeds}


def keep(run: Path, found: Mapping[str, Any]) -> None:
    """Writes one layer's results, beside those of other layers."""
    file = run / PROBES
    before = read_checked_json(file) if file.exists() else {}
    write_checked_json(file, before | {found["layer"]: found})
