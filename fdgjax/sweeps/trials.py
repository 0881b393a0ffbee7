"""The trials of a search: which is next, what is reported of it, and when it is stopped early.

Optuna's study is one file in the search's folder (`search.journal`), to which the processes of all hosts append: each
takes the next trial until the requested number is reached. An unfinished trial is continued by the share that began it,
or without shares by any process, once no process holds its lock.
"""

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from fdgjax.config import read_config
from fdgjax.evaluation.metrics import is_evaluated
from fdgjax.evaluation.probability_figures import figure_in
from fdgjax.experiments import build
from fdgjax.run.compilation_cache import remember_compilations
from fdgjax.run.console import Console
from fdgjax.run.device_choice import as_begun, prepare_cpu
from fdgjax.run.loop import Progress
from fdgjax.run.runner import Interrupted, run_experiment
from fdgjax.sweeps.share import Share
from fdgjax.sweeps.space import Range, Search, Values, drawn, drawn_at_random, with_idle
from fdgjax.sweeps.status import hold, notes
from fdgjax.sweeps.trial_table import BASELINE, ERROR, result_in_words, shown, trial_folder_name, write_table, written
from fdgjax.sweeps.work import failure_text, screen
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder

REPEATED = "repeated"
"""The user attribute of a trial that repeats the values of an earlier one: it is neither run nor counted."""
SHARE = "share"
"""The user attribute that says which share began a trial."""
UNPRUNED = 5
"""The number of trials that are trained to their end before any is stopped early."""


class GivenUp(Exception):
    """The trial is below the median of those before it."""


def open_study(search: Search) -> optuna.Study:
    """The study of the folder, created if there is none."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    make_folder(search.out)
    file = search.out.absolute() / "search.journal"
    mend(file)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED, n_warmup_steps=search.config.rounds // 5)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(file), JournalFileOpenLock(str(file)))),
        pruner=pruner if search.pruning else optuna.pruners.NopPruner(),
        study_name="search",
        direction="maximize" if search.sign > 0 else "minimize",
        load_if_exists=True,
    )


@contextmanager
def journal_lock(file: Path) -> Iterator[None]:
    """Waits until no other process, on any host, is in such a block for this file.

    It uses the lock of Optuna's journal, which requires only exclusive creation of the file system; a lock that a
    killed process left behind expires after 30 seconds.
    """
    lock = JournalFileOpenLock(str(file))
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def mend(file: Path) -> None:
    """Removes a last line that a power cut left unfinished: Optuna cannot read past it."""
    if not file.is_file():
        return
    with journal_lock(file):
        content = file.read_bytes()
        if content and not content.endswith(b"\n"):
            with file.open("r+b") as journal:
                journal.truncate(content.rfind(b"\n") + 1)


def work_on_trials(search: Search, console: Console, stop: threading.Event) -> None:
    """Runs trials until the requested number is reached, counting those of other processes.

    Raises:
      Interrupted: `stop` was set.
    """
    study = open_study(search)
    while left(search, study):
        if stop.is_set():
            raise Interrupted(stopped_search(search, study))
        with ExitStack() as held:
            trial = next_trial(search, study, held)
            if trial is None:
                return
            attempt_trial(search, study, trial, console, stop)


def left(search: Search, study: optuna.Study) -> int:
    """How many trials this share may still run: those not yet begun, and its own unfinished ones."""
    begun = distinct_trials(study)
    return max(search.total - len(begun), 0) + len(running(search, begun))


def stopped_search(search: Search, study: optuna.Study) -> str:
    """The message of a search that was stopped."""
    return f"stopped with {left(search, study)} of {search.total} trials left; the same command goes on"


def next_trial(search: Search, study: optuna.Study, held: ExitStack) -> optuna.Trial | None:
    """A trial that no process runs, held by this one until the end of `held`: an unfinished one of this share, or a new
    one."""
    with journal_lock(search.out / "search.asking"):
        begun = distinct_trials(study)
        for number in running(search, begun):
            mine = held.enter_context(hold(search.out, trial_folder_name(number)))
            # Another process may have finished it in the meantime.
            if mine and number in running(search, distinct_trials(study)):
                return optuna.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)
        if len(begun) >= search.total:
            return None
        own = {key: value for key, value in search.own.items() if value in search.space[key]}
        study.enqueue_trial(own, user_attrs={BASELINE: True}, skip_if_exists=True)
        new = propose(search, study)
        seen = [trial.params for trial in begun if BASELINE not in trial.user_attrs or own.keys() == search.own.keys()]
        if new.params in seen:
            new.set_user_attr(REPEATED, True)
            study.tell(new, state=TrialState.FAIL)
            study.enqueue_trial(unseen(search, seen))
            new = propose(search, study)
        new.set_user_attr(SHARE, search.share)
        held.enter_context(hold(search.out, trial_folder_name(new.number)))
        return new


def distinct_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that were begun, without those that repeat the values of an earlier one."""
    trials = study.get_trials(deepcopy=False)
    return [one for one in trials if one.state != TrialState.WAITING and REPEATED not in one.user_attrs]


def running(search: Search, trials: Sequence[FrozenTrial]) -> list[int]:
    """The numbers of this share's trials that were begun and have no result yet."""
    return [one.number for one in trials if one.state == TrialState.RUNNING and is_ours(search, one)]


def is_ours(search: Search, trial: FrozenTrial) -> bool:
    """Whether this share may continue a trial: one that it began, or one whose process died before recording its
    share. Trials of another number of shares are divided among these by their numbers."""
    ours, begun = search.share, Share(*trial.user_attrs.get(SHARE, search.share))
    return begun == ours if begun.shares == ours.shares else trial.number % ours.shares == ours.number - 1


def propose(search: Search, study: optuna.Study) -> optuna.Trial:
    """A new trial with values from the search's space."""
    # A sampler for each trial: its proposal depends on the trials before it, not on which processes were killed.
    study.sampler = optuna.samplers.TPESampler(seed=(search.seed + len(study.get_trials(deepcopy=False))) % 2**32)
    new = study.ask()
    values_of(search, new)
    return new


def values_of(search: Search, trial: optuna.Trial) -> dict[str, Any]:
    """The trial's values of the hyperparameters, drawn where it has none yet; the config's own in the first trial."""
    if BASELINE not in trial.user_attrs:
        return drawn(search, lambda key, values: suggested(trial, key, values))
    for key, value in search.own.items():
        if value in search.space[key]:  # Optuna knows values of its space alone.
            suggested(trial, key, search.space[key])
    return search.own


def suggested(trial: optuna.Trial, key: str, values: Values) -> Any:
    """The trial's value of one hyperparameter."""
    if not isinstance(values, Range):
        return trial.suggest_categorical(key, values)
    if isinstance(values.low, int):
        return trial.suggest_int(key, values.low, int(values.high), log=values.log)
    return trial.suggest_float(key, values.low, values.high, log=values.log)


def unseen(search: Search, seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Random values that no trial has yet; there must be some left."""
    generator = random.Random(search.seed + len(seen))
    while (values := drawn_at_random(search, generator)) in seen:
        pass
    return values


def attempt_trial(
    search: Search, study: optuna.Study, trial: optuna.Trial, console: Console, stop: threading.Event
) -> None:
    """Runs or continues a trial, and reports the result to the study.

    Raises:
      Interrupted: `stop` was set; the trial has no result yet, and continues next time.
    """
    values = values_of(search, trial)
    name, set_to = trial_folder_name(trial.number), "  ".join(f"{key}={shown(value)}" for key, value in values.items())
    console.say(f"{name}: {set_to}; its own lines are in {notes(search.out) / f'{name}.log'}")
    try:
        # A run's own lines have figures of the unseen domain, by which nobody should choose.
        with screen(search.out, name, alone=False, console=console) as log:
            study.tell(trial, run_trial(search, trial, values, console, log, stop))
    except Interrupted as news:
        raise Interrupted(f"{str(news).partition(';')[0]}; {stopped_search(search, study)}") from news
    except GivenUp:
        study.tell(trial, state=TrialState.PRUNED)
    except Exception as error:  # One trial's lack of memory must not stop the others.
        fail(study, trial, failure_text(error))
    jax.clear_caches()
    told = study.get_trials(deepcopy=False)[trial.number]
    done = sum(trial.state.is_finished() for trial in distinct_trials(study))
    console.say(f"[{done}/{search.total}] {name}: {result_in_words(told, search)}  {set_to}")
    with hold(search.out, ".tables", wait=True):
        write_table(search, distinct_trials(study))


def fail(study: optuna.Study, trial: optuna.Trial, reason: str) -> None:
    """Tells the study that the trial failed, and why."""
    trial.set_user_attr(ERROR, reason)
    study.tell(trial, state=TrialState.FAIL)


def run_trial(
    search: Search,
    trial: optuna.Trial,
    values: Mapping[str, Any],
    console: Console,
    log: Console,
    stop: threading.Event,
) -> float:
    """One run, continued from its last checkpoint if any; returns the objective at the round that the run reports.

    Its own lines go to `log`, the objective at each evaluation to the console.

    Raises:
      GivenUp: it is below the median of the trials before it at the same round.
      UserError, Interrupted: as a run does.
    """
    chosen = search.config.copy_and_resolve_references()  # a copy by ConfigDict would share `method`
    chosen.method.update(values if BASELINE in trial.user_attrs else with_idle(search, values))
    config = read_config(chosen)
    path = search.out / trial_folder_name(trial.number)
    remember_compilations(config)
    prepare_cpu(config, path)
    reported = set(trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def told(progress: Progress) -> None:
        """Reports each evaluated round's figure on held-out source data, and nothing else."""
        if not is_evaluated(progress.records[0]) or progress.number == config.rounds:
            return
        if progress.number not in reported:
            value = objective(progress.records, search.figure)
            trial.report(value, progress.number)
            console.say(f"  round {progress.number}/{config.rounds}  {written(value, search)}")
        if BASELINE not in trial.user_attrs and trial.should_prune():
            raise GivenUp

    experiment = build(as_begun(config, path))
    return objective([run_experiment(experiment, path, log, stop, [told])], search.figure)


def objective(figures: Sequence[Mapping[str, Any]], figure: str) -> float:
    """The mean of the seeds' figures on data that the source domains held out.

    Raises:
      UserError: there are no such data, or too few for the figure.
    """
    if any(figure not in one for one in figures):
        raise UserError(
            f"search got a run without {figure}; expected clients that hold out labelled data"
            + (", of every class" if figure_in(figure) else "")
        )
    return sum(float(one[figure]) for one in figures) / len(figures)
