"""Training an experiment round by round, with a record of each round for each seed."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.config import Config
from fdgjax.contract import PyTree
from fdgjax.engine import RoundInfo, State, each_seed
from fdgjax.engine.robustness.defences import Verdict
from fdgjax.evaluation import figures
from fdgjax.evaluation.evaluating import reference_figures
from fdgjax.evaluation.metrics import Record
from fdgjax.evaluation.pseudo_label_accuracy import pseudo_label_figures
from fdgjax.experiments import Experiment
from fdgjax.utils.errors import UserError


def images_per_round(experiment: Experiment) -> list[float]:
    """Training images per round, at clients and at the server, for each seed; the expected number if a round selects
    only some of the clients."""
    train, serves = experiment.train, experiment.method.server_training is not None
    each = zip(np.atleast_2d(train.train.length), np.atleast_2d(train.server.length), strict=True)
    return [trained_images(experiment.config, clients, serves * server) for clients, server in each]


def trained_images(config: Config, clients: np.ndarray, server: np.ndarray) -> float:
    """Training images per round, at clients and at a server of these numbers of samples, `[clients]` and `[rows]`; see
    `images_per_round`."""
    batch, total = config.batch_size, len(clients)
    at_clients, at_server = (np.sum(n // batch * batch if config.drop_last else n) for n in (clients, server))
    return float(config.local_epochs * ((config.clients_per_round or total) / total * at_clients + at_server))


class Progress(NamedTuple):
    """The result of a round: its number, each seed's record, the state, and the seconds the round took.

    The state is None if the next round has begun, since that donates the state's buffers.
    """

    number: int
    records: list[Record]
    state: PyTree | None
    seconds: float


Observer = Callable[[Progress], None]
"""Follows a run: called with each round and its state before the next round begins. It may request a stop; an exception
ends the run at once."""


def follow_rounds(rounds: Iterable[Progress], observers: Sequence[Observer]) -> Progress | None:
    """Runs all rounds, with the observers called in order after each, and returns the last; None if there was none."""
    progress = None
    for progress in rounds:
        for observe in observers:
            observe(progress)
    return progress


def keep_records(records: Sequence[list[Record]]) -> Observer:
    """An observer that appends each seed's record to that seed's list."""

    def keep(progress: Progress) -> None:
        for of_seed, record in zip(records, progress.records, strict=True):
            of_seed.append(record)

    return keep


class Started(NamedTuple):
    """A round dispatched to the device: its number, its results (possibly still being computed), and its start time.

    observed: the evaluation's outputs for its state if the round is evaluated; else None.
    """

    number: int
    state: State
    info: RoundInfo
    observed: PyTree | None
    begin: float


def never_ahead(done: int) -> bool:
    """No round begins before the figures of the previous round are read."""
    del done
    return False


def train_rounds(
    experiment: Experiment, state: State, ahead: Callable[[int], bool] = never_ahead
) -> Iterator[Progress]:
    """Rounds from `state` to the configured number, one `Progress` each.

    Args:
      experiment: what to train.
      state: where to start. Its buffers are donated, and so are those of each state once the next round begins.
      ahead: whether, after round `done` has been started, the next one may start before the figures of round `done` are
        read, so that the device computes while the host reads, checks and writes. That round's `Progress` then has no
        state.

    Raises:
      UserError: the server's state is not finite, or a client's update is not finite and non-finite updates are not
        dropped (by `config.drop_nonfinite` or a defence).
    """
    config, count = experiment.config, len(experiment.seeds)
    # The true labels are used for the records only; training uses `experiment.train`, which may lack them.
    tables, truth = jax.device_get((experiment.train.train, experiment.federation.labels))
    first = int(np.max(jax.device_get(state.round))) + 1
    before = reference_figures(experiment.evaluation, state, experiment.federation) if first == 1 else None
    free = 0.0  # when the device had finished all earlier rounds

    def told(one: Started, *, last: bool) -> Progress:
        nonlocal free
        infos = each_seed(jax.device_get(one.info), count)
        seconds = time.perf_counter() - max(one.begin, free)
        records = records_of(experiment, one, infos, each_seed(tables, count), truth)
        free = time.perf_counter()
        if one.number == 1 and before is not None:
            records = [record | of_seed for record, of_seed in zip(records, before, strict=True)]
        return Progress(one.number, records, one.state if last else None, seconds)

    waiting: Started | None = None
    for done in range(first, config.rounds + 1):
        now = start_round(experiment, state, done)
        state = now.state
        if waiting is not None:
            yield told(waiting, last=False)
        waiting = now if done < config.rounds and ahead(done) else None
        if waiting is None:
            yield told(now, last=True)


def start_round(experiment: Experiment, state: State, number: int) -> Started:
    """Starts a round from a state, and the evaluation of the new state if it is due, without waiting for either."""
    config, begin = experiment.config, time.perf_counter()
    state, info = experiment.round(state, experiment.train)
    observed = experiment.evaluation.observe(state, experiment.federation) if is_due(config, number) else None
    return Started(number, state, info, observed, begin)


def is_due(config: Config, number: int) -> bool:
    """Whether a round is evaluated."""
    return number % config.eval_every == 0 or number == config.rounds


def records_of(
    experiment: Experiment, one: Started, infos: Sequence[RoundInfo], tables: Sequence[PyTree], truth: np.ndarray
) -> list[Record]:
    """Each seed's record of a round, with its figures if the round is evaluated. Raises like `train_rounds`."""
    config, seeds = experiment.config, experiment.seeds
    dropped = config.drop_nonfinite or infos[0].verdict is not None
    for seed, info in zip(seeds, infos, strict=True):
        check_finite(info, one.number, f" of seed {seed}" if len(seeds) > 1 else "", dropped)
    records = [
        round_record(one.number, info) | pseudo_label_figures(info, rows, truth)
        for info, rows in zip(infos, tables, strict=True)
    ]
    if experiment.epsilon is not None:
        spent = {"privacy_epsilon": experiment.epsilon(one.number)}
        records = [record | spent for record in records]
    if one.observed is None:
        return records
    evaluation = experiment.evaluation
    further = evaluation.further(one.observed) if evaluation.further else [{} for _ in records]
    each = zip(records, evaluation.measure(one.observed), further, strict=True)
    return [record | figures(metrics) | more for record, metrics, more in each]


def round_record(round_: int, info: RoundInfo) -> Record:
    """One line of `metrics.jsonl`: losses and aggregation weights of the clients that took part."""
    dropped = [int(who) for who, fine in zip(info.participants, info.finite, strict=True) if not fine]
    counted = info.loss[info.finite & ~np.isnan(info.loss)]
    return {
        "round": round_,
        "train_loss": float(np.mean(counted)) if len(counted) else None,
        "client_loss": as_plain(info.loss),
        **({} if info.server_loss is None else {"server_loss": as_plain(info.server_loss)}),
        "participants": as_plain(info.participants),
        **({"dropped": dropped} if dropped else {}),
        **({} if info.verdict is None else verdict_record(info.verdict)),
        **{
            f"coefficients/{jax.tree_util.keystr(path, simple=True, separator='/')}": as_plain(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(info.coefficients)
        },
    }


def verdict_record(verdict: Verdict) -> Record:
    """What a defence did with each participant: `defence/norm`, `defence/factor`, `defence/share` and
    `defence/distance`."""
    return {f"defence/{name}": as_plain(one) for name, one in verdict._asdict().items() if one is not None}


def as_plain(values: PyTree) -> Any:
    """An array as nested lists of numbers for JSON; non-finite values become None, since JSON cannot represent them."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        return value if np.isfinite(value) else None

    return plain(np.asarray(values).tolist())


def check_finite(info: RoundInfo, round_: int, whose: str, dropped: bool) -> None:
    """Raises a `UserError` if the server diverged, or if a client diverged and such clients are not `dropped`; `whose`
    names the seed in the message."""
    if info.server_loss is not None and not np.isfinite(info.server_loss):
        raise UserError(
            f"the server's own training{whose} gave NaN or infinity in round {round_}; expected finite numbers; "
            "lower method.client_learning_rate"
        )
    if not info.finite.all() and not dropped:
        place = int(np.argmin(info.finite))
        what = "NaN or infinity" if not np.isfinite(info.largest[place]) else f"numbers up to {info.largest[place]:.0e}"
        raise UserError(
            f"client {int(info.participants[place])}{whose} sent an update with {what} in round {round_}; expected "
            "finite numbers whose squares are finite; lower method.client_learning_rate, or set "
            "--config.drop_nonfinite=True to leave such a client out of the round"
        )
    if not info.server_finite:
        sent = np.where(info.finite, info.largest, 0)
        client = int(info.participants[int(np.argmax(sent))])
        raise UserError(
            f"the server's state{whose} has NaN or infinity after round {round_}, in which client {client} sent the "
            f"largest numbers (up to {sent.max():.0e}); expected finite numbers; lower method.server_learning_rate or "
            "method.client_learning_rate"
        )
