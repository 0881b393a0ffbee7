"""A run: an experiment trained with records in a folder, resumed exactly where it stopped."""

import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from fdgjax.config import Config
from fdgjax.console import Console
from fdgjax.experiment import Experiment, build, histogram, images_per_round, label_summary, train
from fdgjax.records import History, Workdir, open_checkpoints, open_workdir, summarise
from fdgjax.records.events import open_events
from fdgjax.records.workdir import append_line, write_json, write_lines


class Interrupted(Exception):
    """The run was asked to stop and did, its state saved; the same command continues it."""


def run(config: Config, path: Path, console: Console, stop: threading.Event) -> dict[str, Any]:
    """Trains the experiment, or goes on with it, and returns its summary.

    Args:
      config: the experiment.
      path: the run's folder.
      console: what the user sees.
      stop: set from outside to save and leave after the current round.

    Raises:
      UserError: bad input, or a client that diverged.
      Interrupted: `stop` was set; the state is saved.
    """
    experiment = build(config)
    workdir = open_workdir(path, config)
    if workdir.summary.exists():
        console.say(f"finished before: {workdir.summary}")
        return json.loads(workdir.summary.read_text())
    console.say(histogram(experiment))
    console.say(label_summary(experiment))
    return train_with_records(experiment, workdir, console, stop)


def train_with_records(
    experiment: Experiment, workdir: Workdir, console: Console, stop: threading.Event
) -> dict[str, Any]:
    """Training from the newest checkpoint to the summary; see `run`."""
    begin = time.perf_counter()
    config = experiment.config
    checkpoints = open_checkpoints(workdir.checkpoints)
    state, history = experiment.init(), History([], 0.0)
    if restored := checkpoints.restore(state):
        state, history = restored
        console.say(f"continuing after round {int(state.round)} of {config.rounds}")
    records, before = history
    # Rounds after the checkpoint are done again, so their lines go.
    write_lines(workdir.metrics, records)
    durations = []
    events = open_events(workdir.events, first_round=len(records) + 1)
    with console.progress(config.rounds, len(records)) as show:
        for progress in train(experiment, state):
            durations.append(progress.seconds)
            records.append(progress.record)
            append_line(workdir.metrics, progress.record)
            events.write(progress.record)
            show(progress.record)
            done = len(records)
            elapsed = before + time.perf_counter() - begin
            if done % config.checkpoint_every == 0 or done == config.rounds or stop.is_set():
                checkpoints.save(done, progress.state, History(records, elapsed))
            if stop.is_set() and done < config.rounds:
                raise Interrupted(f"stopped after round {done} of {config.rounds}; the same command continues")
    timings = {
        # The first round of a process includes compilation.
        "images_per_second": images_per_round(experiment) / statistics.median(durations[1:] or durations or [1]),
        "wall_seconds": before + time.perf_counter() - begin,
    }
    summary = summarise(records, config.selection, experiment.facts, timings)
    write_json(workdir.summary, summary)
    return summary
