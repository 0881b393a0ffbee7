"""A run: an experiment trained with records in a folder, resumed exactly where it stopped."""

import contextlib
import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from fdgjax.config import Config
from fdgjax.console import Console
from fdgjax.experiment import (
    Experiment,
    build,
    compile_ahead,
    histogram,
    images_per_round,
    label_summary,
    state_shapes,
    train,
)
from fdgjax.memory import Memory, free_bytes, peak_bytes, peak_in_words, shortage
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
    durations = []
    with contextlib.ExitStack() as cleanup:
        checkpoints = cleanup.enter_context(contextlib.closing(open_checkpoints(workdir.checkpoints)))
        restored = checkpoints.restore(state_shapes(experiment))
        state, (records, before) = restored or (experiment.init(), History([], 0.0))
        done = len(records)
        if done:
            console.say(f"continuing after round {done} of {config.rounds}")
        # Rounds after the checkpoint are done again, so their lines go.
        write_lines(workdir.metrics, records)
        events = cleanup.enter_context(contextlib.closing(open_events(workdir.events, first_round=done + 1)))
        leave_if(stop, done, config.rounds)
        show = cleanup.enter_context(console.progress(config.rounds, done))
        experiment, memory = compile_ahead(experiment, state)
        say_memory(memory, console)
        leave_if(stop, done, config.rounds)
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
            leave_if(stop, done, config.rounds)
    peak = peak_bytes()
    console.say(f"memory: {peak_in_words(peak)}")
    typical = statistics.median(durations or [before / config.rounds])
    timings = {
        "images_per_second": images_per_round(experiment) / typical,
        "wall_seconds": before + time.perf_counter() - begin,
        "predicted_memory_bytes": memory.total,
        "peak_memory_bytes": peak,
    }
    summary = summarise(records, config.selection, experiment.facts, timings)
    write_json(workdir.summary, summary)
    return summary


def say_memory(memory: Memory, console: Console) -> None:
    """What a round will take; and a warning, before any work, where that is more than there is."""
    console.say(f"memory: {memory}")
    if warning := shortage(memory, free_bytes()):
        console.say(warning)


def leave_if(stop: threading.Event, done: int, rounds: int) -> None:
    """Raises `Interrupted` where the run was asked to stop and is not over."""
    if done < rounds and stop.is_set():
        raise Interrupted(f"stopped after round {done} of {rounds}; the same command continues")
