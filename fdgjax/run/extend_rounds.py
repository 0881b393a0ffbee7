"""A run continued for more rounds: the same command with a larger `rounds` resumes the run in the folder.

The result equals, bit for bit, that of a run that had the larger number from the start. Continuing is therefore allowed
only if both runs compile to the same programs, which they do not where a schedule, such as a cosine over the rounds, or
the noise of `privacy.epsilon` depends on the number of rounds. The last round of a run is always evaluated; if the
longer run would not have evaluated that round, its figures are removed from the records. The earlier summary is kept as
`summary_N.json`, and `continued_from` in `config.json` and `summary.json` lists the earlier numbers of rounds.
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fdgjax.config import Config, experiment_identity, for_seed, seeds_of, to_plain
from fdgjax.evaluation.metrics import Record, figure_keys
from fdgjax.experiments import Experiment, build
from fdgjax.run.compilation import state_shapes
from fdgjax.run.loop import is_due
from fdgjax.run.records import Workdir, begun_with, read_config_file
from fdgjax.run.records.workdir import seed_workdir
from fdgjax.utils.checksums import write_checked_json
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import sync

CONTINUED = "continued_from"
"""The key of `config.json` and `summary.json` with the earlier numbers of rounds, in order."""


def earlier_rounds(path: Path, config: Config) -> int:
    """The number of rounds of the folder's run, if that is this experiment with fewer rounds; else 0."""
    if not (begun := begun_with(path)):
        return 0
    held = begun["config"]
    same = experiment_identity(held) | {"rounds": config.rounds} == experiment_identity(to_plain(config))
    return int(held["rounds"]) if same and held["rounds"] < config.rounds else 0


def refuse_schedules(path: Path, experiment: Experiment, earlier: int) -> None:
    """Raises a `UserError` if the longer run's rounds compile to another program than the earlier run's."""
    config = experiment.config
    if programs(experiment) != programs(build(dataclasses.replace(config, rounds=earlier))):
        schedule = getattr(config.method, "client_schedule", "constant")
        settings = [f"client_schedule={schedule}"] * (schedule != "constant")
        # Its noise follows from the number of rounds.
        settings += [f"privacy.epsilon={config.privacy.epsilon:g}"] * bool(config.privacy.epsilon)
        of_what = f"'{config.method.name}'" + (f" with {' and '.join(settings)}" if settings else "")
        raise UserError(
            f"workdir {path} holds {earlier} rounds of {of_what}, each of which depends on their number, and "
            f"config.rounds is {config.rounds} here; expected {earlier}; choose another folder to begin again"
        )


def programs(experiment: Experiment) -> list[str]:
    """The text of the lowered programs that initialise a state and train it for a round."""
    # Typed as Callable; they are jitted functions.
    round_: Any = experiment.round
    init: Any = experiment.init.func
    lowered = (init.lower(*experiment.init.args), round_.lower(state_shapes(experiment), experiment.train))
    return [each.as_text() for each in lowered]


def prolong(workdir: Workdir, config: Config, earlier: int) -> None:
    """Makes the folder's run, and its seeds', the longer run; a kill at any moment leaves one or the other."""
    several = seeds_of(config) if config.seeds > 1 else ()
    parts = [(seed_workdir(workdir, seed), for_seed(config, seed)) for seed in several]
    # The run's own folder comes last: until it is rewritten, the same command repeats all of this.
    for folder, own in (*parts, (workdir, config)):
        if not (content := begun_with(folder.path)):
            continue
        if folder.summary.exists():
            os.replace(folder.summary, folder.path / f"summary_{earlier}.json")
            sync(folder.path)
        if content["config"]["rounds"] != own.rounds:
            before = [*content.get(CONTINUED, []), earlier]
            write_checked_json(folder.config, content | {"config": to_plain(own), CONTINUED: before})


def continued_from(workdir: Workdir) -> dict[str, Any]:
    """The summary's entry on earlier numbers of rounds; empty for a run that was never continued for more rounds."""
    content = read_config_file(workdir)
    return {CONTINUED: content[CONTINUED]} if CONTINUED in content else {}


def as_planned(records: Sequence[Record], config: Config) -> list[Record]:
    """The records, without the figures of rounds that a run of `config.rounds` rounds would not evaluate."""
    figures = figure_keys()
    return [
        record
        if is_due(config, record["round"])
        else {key: value for key, value in record.items() if key not in figures}
        for record in records
    ]
