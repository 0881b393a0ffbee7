"""A run: an experiment trained with records in a folder, resumed exactly where it stopped."""

import contextlib
import dataclasses
import hashlib
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fdgjax.config import Config, experiment_identity, to_plain
from fdgjax.data.sources.arrays import content_digest
from fdgjax.distributed import Stop, any_stop, broadcast, check_same, is_coordinator, is_distributed
from fdgjax.evaluation.metrics import Record
from fdgjax.experiments import Experiment, build
from fdgjax.loggers import check_loggers
from fdgjax.models.client_model import note_dtype
from fdgjax.models.frozen import trunk_content
from fdgjax.run.compilation import compile_ahead, first_state, state_shapes
from fdgjax.run.console import Console, silent_console
from fdgjax.run.description import histogram, label_summary, notes
from fdgjax.run.device_choice import as_begun, unlike_begun
from fdgjax.run.extend_rounds import as_planned, continued_from, earlier_rounds, prolong, refuse_schedules
from fdgjax.run.loop import Observer, Progress, follow_rounds, keep_records, train_rounds
from fdgjax.run.memory_check import (
    Memory,
    capacity_bytes,
    free_bytes,
    peak_bytes,
    peak_in_words,
    refuse_impossible,
    refuse_shortage,
    shortage,
)
from fdgjax.run.multihost import check_shared, lock_or_see, logs_of
from fdgjax.run.outputs import RunOutput, open_outputs, places, write_descriptions
from fdgjax.run.records import (
    Checkpoint,
    History,
    Workdir,
    check_data,
    check_place,
    check_workdir,
    finished,
    library_versions,
    mean_figures,
    note_programs,
    open_seeds,
    open_workdir,
    read_records,
    write_summary,
)
from fdgjax.run.selected import may_be_selected, updated
from fdgjax.run.summaries import Timings, of_all_seeds, summaries
from fdgjax.utils.checksums import write_checked_json


class Interrupted(Exception):
    """The run stopped on request, its state saved; the same command continues it."""


def run_config(
    config: Config, path: Path, console: Console, stop: Stop, after: Callable[[Experiment, Path], object] = lambda *_: 0
) -> dict[str, Any]:
    """Trains the experiment of a config, or resumes it, and returns its summary; see `run_experiment`. Once it is
    finished, now or before, `after` is called with the experiment and the run's folder."""

    def devices() -> int:
        check_place(path)
        check_loggers(config.writers)
        return as_begun(config, path).devices

    check_same_config(config)
    begun = dataclasses.replace(config, devices=broadcast(devices))
    experiment = build(begun)
    summary = run_experiment(experiment, path, console, stop)
    after(experiment, path)
    return summary


def run_experiment(
    experiment: Experiment,
    path: Path,
    console: Console,
    stop: Stop,
    observers: Sequence[Observer] = (),
) -> dict[str, Any]:
    """Trains the experiment, or resumes it, and returns its summary (over all seeds if there are several).

    In a run of several processes, each process calls this; only process 0 writes records.

    If the folder's run differs only in having fewer rounds, it is continued; see `fdgjax.run.extend_rounds`.

    Args:
      experiment: what to train.
      path: the run's folder.
      console: what the user sees.
      stop: set from outside to save and stop after the current round.
      observers: called in order after each trained round, before it is saved; an observer may set `stop`.

    Raises:
      UserError: invalid input, a client that diverged, or more rounds for a run whose rounds depend on their number.
      Interrupted: `stop` was set; the state is saved.
    """
    config, content = experiment.config, content_digest(experiment.data)
    trunk = trunk_content(experiment.trunk)
    check_same_config(config)

    def found(say: Callable[[str], None], compared: int = 0) -> tuple[int, dict[str, Any]]:
        """The folder's fewer rounds, if any, whose programs are compared unless they were, and a finished summary."""
        check_place(path)
        check_loggers(config.writers)
        earlier = earlier_rounds(path, config)
        if earlier not in (0, compared):
            refuse_schedules(path, experiment, earlier)
        check_workdir(path, dataclasses.replace(config, rounds=earlier or config.rounds))
        check_data(Workdir(path), content, trunk)
        return earlier, {} if earlier else finished(Workdir(path), say)

    earlier, summary = broadcast(partial(found, console.say))
    check_same("data", content, "the same files on every host; copy them from the host of process 0")
    check_same("frozen weights", trunk, "the same file on every host; copy it from the host of process 0")
    programs = "" if summary else note_programs(path)
    for note in filter(None, (unlike_begun(config, path), programs, note_dtype(config.dtype))):
        console.say(note)
    if summary:
        return finished_before(summary, path, console)
    with lock_or_see(path, console.say) as workdir:
        # Another process may have trained there between the look and the lock; damage was said above.
        earlier, summary = broadcast(partial(found, silent_console().say, earlier))
        if summary:
            return finished_before(summary, path, console)
        if is_coordinator():
            open_workdir(path, dataclasses.replace(config, rounds=earlier or config.rounds))
        outputs = [RunOutput(config, workdir)]
        if earlier:
            refuse_other_state(experiment, outputs, console)
        if earlier and is_coordinator():
            prolong(workdir, config, earlier)
            console.say(f"a run of {earlier} rounds, continued to {config.rounds}")
        check_shared(workdir)
        console.say("\n".join([histogram(experiment), *notes(experiment)]))
        console.say(f"{config.model.name}: {experiment.cost}")
        console.say(label_summary(experiment))
        return summed_up(outputs, train_with_records(experiment, outputs, console, stop, observers))[0]


def finished_before(summary: Mapping[str, Any], path: Path, console: Console) -> dict[str, Any]:
    """The summary of a run that is finished already, which is said."""
    console.say(f"finished before: {Workdir(path).summary}")
    return dict(summary)


def refuse_other_state(experiment: Experiment, outputs: Sequence[RunOutput], console: Console) -> None:
    """Raises a `UserError` if the newest checkpoint holds a state of another structure, as of an earlier version: a
    finished run that cannot go on stays finished."""
    with contextlib.closing(open_outputs(outputs, console.say)) as checkpoints:
        checkpoints.restore(state_shapes(experiment))


def check_same_config(config: Config) -> None:
    """Raises a `UserError`, in every process, unless all have the same experiment and library versions."""
    if not is_distributed():
        return
    own = json.dumps([experiment_identity(to_plain(config)), library_versions()], sort_keys=True)
    digest = hashlib.sha256(own.encode()).hexdigest()
    check_same("a config or library versions", digest, "the same command and the same environment on every host")


def train_with_records(
    experiment: Experiment,
    outputs: Sequence[RunOutput],
    console: Console,
    stop: Stop,
    observers: Sequence[Observer],
) -> list[dict[str, Any]]:
    """Trains from the newest checkpoint to the last round and returns each seed's summary; see `run_experiment`.

    Without outputs it trains in memory, from the first round, and writes nothing.

    Raises:
      TooLarge: there are several outputs, and a round of all of them needs more memory than is free.
    """
    begin = time.perf_counter()
    config, stop, durations = experiment.config, any_stop(stop), list[float]()
    with contextlib.ExitStack() as cleanup:
        write_descriptions(outputs, experiment)
        checkpoints = cleanup.enter_context(contextlib.closing(open_outputs(outputs, console.say)))
        shapes = state_shapes(experiment)
        refuse_impossible(shapes, config.devices, capacity_bytes())
        state, (found, before), selected = checkpoints.restore(shapes) or beginning(experiment, outputs, console)
        records = [as_planned(of_seed, config) for of_seed in found]
        done = len(records[0])
        if done:
            console.say(f"continuing after round {done} of {config.rounds}")
        logs = [
            cleanup.enter_context(contextlib.closing(log))
            for output, place in zip(outputs, places(outputs), strict=True)
            for log in logs_of(output.workdir, output.config, records[place], console.say)
        ]
        leave_if(stop.is_set(), done, config.rounds)
        show = cleanup.enter_context(console.progress(config.rounds, done))
        experiment, memory = compile_ahead(experiment, state)
        if len(outputs) > 1:
            refuse_shortage(memory, free_bytes())
        say_memory(memory, console)
        leave_if(stop.is_set(), done, config.rounds)

        def ahead(started: int) -> bool:
            # An observer may stop the run; a checkpoint and a selection need the state, which the next round donates.
            needed = started % config.checkpoint_every == 0 or may_be_selected(config, started)
            return not observers and not needed and not stop.is_set()

        def log(progress: Progress) -> None:
            durations.append(progress.seconds)
            for one, record in zip(logs, progress.records, strict=bool(outputs)):
                one.write(record)
            show({"round": progress.number, **means_of(progress.records)})

        def save(progress: Progress) -> None:
            nonlocal selected
            done = progress.number
            if progress.state is None:
                return
            selected = updated(selected, progress.state, records, config)
            # Asked once: a stop that came between the saving and the leaving would leave without having saved.
            stopping = stop.is_set()
            if done % config.checkpoint_every == 0 or done == config.rounds or stopping:
                elapsed = before + time.perf_counter() - begin
                checkpoints.save(done, progress.state, History(records, elapsed), selected)
            leave_if(stopping, done, config.rounds)

        follow_rounds(train_rounds(experiment, state, ahead), [keep_records(records), log, *observers, save])
    console.say(f"memory: {peak_in_words(peak_bytes())}")
    seconds = before + time.perf_counter() - begin
    timings = Timings(seconds, statistics.median(durations or [before / config.rounds]), memory.total)
    return summaries(experiment, records, timings)


def beginning(experiment: Experiment, outputs: Sequence[RunOutput], console: Console) -> Checkpoint:
    """The state before the first round; records without a checkpoint are kept."""
    keep_lost_records(outputs, console)
    return Checkpoint(first_state(experiment), History([[] for _ in experiment.seeds], 0.0))


def keep_lost_records(outputs: Sequence[RunOutput], console: Console) -> None:
    """Says so where records of rounds with a checkpoint are there and no checkpoint is left, and keeps them as
    `metrics_ROUNDS.jsonl`: training begins again, and writes them anew."""
    if not is_coordinator():
        return
    for output in outputs:
        for folder in open_seeds(output.workdir, output.config):
            rounds = len(read_records(folder))
            if rounds >= min(output.config.checkpoint_every, output.config.rounds):
                kept = folder.metrics.replace(folder.metrics.with_name(f"metrics_{rounds}.jsonl"))
                console.say(
                    f"no checkpoint is left of {rounds} rounds, whose records stay in {kept}: training begins again"
                )


def summed_up(outputs: Sequence[RunOutput], each: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each output's summary, made from those of its seeds; process 0 writes all of them."""
    found = []
    for output, place in zip(outputs, places(outputs), strict=True):
        seeds = [{**one, **continued_from(output.workdir)} for one in each[place]]
        found.append(of_all_seeds(seeds))
        if is_coordinator():
            for folder, own in zip(open_seeds(output.workdir, output.config), seeds, strict=True):
                write_summary(folder, own)
            if len(seeds) > 1:
                write_checked_json(output.workdir.summary, found[-1])
    return found


def say_memory(memory: Memory, console: Console) -> None:
    """Prints the memory that a round will take, with a warning if less than that is free."""
    console.say(f"memory: {memory}")
    if warning := shortage(memory, free_bytes()):
        console.say(warning)


def means_of(seeds: Sequence[Record]) -> Record:
    """The means over the seeds of a round's figures and training loss; of a loss None where no client's is finite."""
    losses = [record["train_loss"] for record in seeds if record["train_loss"] is not None]
    return {"train_loss": statistics.fmean(losses) if losses else None, **mean_figures(seeds)}


def leave_if(stopping: bool, done: int, rounds: int) -> None:
    """Raises `Interrupted` if a stop is requested and rounds remain."""
    if stopping and done < rounds:
        raise Interrupted(f"stopped after round {done} of {rounds}; the same command continues")
