"""The server's rounds over any transport: requests, replies, deadlines, checkpoints and records."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdgjax.aggregation.updates import largest_magnitude
from fdgjax.deploy.delivery import deliver
from fdgjax.deploy.evaluated_rounds import make_evaluation
from fdgjax.deploy.folder import STATES, in_words, name_of, open_folder, write_records, write_result
from fdgjax.deploy.leaves import checked_leaves
from fdgjax.deploy.privacy import guard_of_server, privacy_figures
from fdgjax.deploy.requests import requests_of
from fdgjax.deploy.server import DeployedRound, DeployedState, Sending, ServerPrograms, begin_round, finish_round
from fdgjax.deploy.terms import Terms, to_words
from fdgjax.deploy.wire import Reply, Say, Transport
from fdgjax.engine.round import SQUARED_OVERFLOWS
from fdgjax.evaluation.metrics import Record
from fdgjax.run.extend_rounds import as_planned
from fdgjax.run.loop import Progress, follow_rounds, is_due, keep_records
from fdgjax.run.records import History, open_checkpoints
from fdgjax.run.selected import updated
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of

NUMBERS = ("round", "largest", "samples", "seconds", "compiled")
"""Facts of every reply to a request to train."""
DIVERGING = ("largest", "loss")
"""Those of a client that diverged, or trained on no sample, are not finite; see `used` and `loss_of`."""


class Policy(NamedTuple):
    """What the server does about clients that do not answer.

    deadline: seconds after which a round continues without them; 0 waits for all.
    least: number of replies that a round needs; with fewer, its requests are repeated.
    """

    deadline: float = 0.0
    least: int = 1


def run_rounds(server: ServerPrograms, transport: Transport, folder: Path, policy: Policy, say: Say) -> DeployedState:
    """Runs all rounds of the agreed config, from the newest checkpoint in `folder` on; then delivers the models.

    Raises:
      UserError: a client's error while the server waits for all clients, numbers that are not finite, or damaged
        checkpoints.
    """
    terms = server.agreed.terms
    workdir = open_folder(folder, terms)
    server = server if server.guard else server._replace(guard=guard_of_server(server.agreed, folder))
    checkpoints = open_checkpoints(folder / STATES, say)
    try:
        joined = transport.join(to_words(terms), terms.parties)
        lengths = np.array([joined[party] for party in terms.trained], np.int32)
        held, records, selected = server.first(lengths), [list[Record]()], None
        if (found := checkpoints.restore(held)) is not None:
            held, records, selected = on_host(found.state), found.history.records, found.selected
            check_lengths(held, lengths, terms)
            say(f"continuing after round {int(held.state.round)} of {terms.config.rounds}")
            records = [as_planned(of_seed, terms.config) for of_seed in records]
        evaluate = make_evaluation(server, transport, policy.deadline, records[0], say, name_of(folder))

        def save(progress: Progress) -> None:
            nonlocal selected
            assert progress.state is not None
            selected = updated(selected, progress.state, records, terms.config)
            checkpoints.save(progress.number, progress.state, History(records, 0.0), selected)

        def log(progress: Progress) -> None:
            write_records(workdir, records[0])
            say(in_words(progress.records[0], terms))

        last = follow_rounds(rounds(server, transport, held, policy, evaluate, say), [keep_records(records), save, log])
        if last is not None and last.state is not None:
            held = last.state
        write_records(workdir, records[0])
        write_result(workdir, server, lengths, records[0])
        deliver(server, transport, held, policy.deadline, folder, say, records[0], selected)
    finally:
        checkpoints.close()
    return held


def on_host(held: DeployedState) -> DeployedState:
    """The state with `lengths` and `accepted` as NumPy arrays."""
    return held._replace(lengths=np.asarray(held.lengths), accepted=np.array(held.accepted))


def check_lengths(held: DeployedState, lengths: np.ndarray, terms: Terms) -> None:
    """Raises a `UserError` if a client's number of samples has changed since the run began."""
    for client, before, now in zip(terms.trained, held.lengths, lengths, strict=True):
        if changed := changed_length(before, now):
            raise UserError(f"client {client} {changed}")


def changed_length(before: int, now: object) -> str:
    """What is said of a client whose number of samples was another one when the run began; '' for the same."""
    if before == now:
        return ""
    return (
        f"holds {now} samples and held {before} when this run began; expected the same; restore them, or begin "
        "again with another workdir"
    )


def rounds(
    server: ServerPrograms,
    transport: Transport,
    held: DeployedState,
    policy: Policy,
    evaluate: Callable[[DeployedState], Record],
    say: Say,
) -> Iterator[Progress]:
    """The rounds up to the configured number, each with its `DeployedState`; `evaluate` gives the figures of a state,
    `say` is told of answers that are not used. Raises like `run_rounds`."""
    terms, config = server.agreed.terms, server.agreed.terms.config
    lengths = dict(zip(terms.trained, map(int, held.lengths), strict=True))
    drop = config.drop_nonfinite or server.agreed.plan.defence is not None
    while int(held.state.round) < config.rounds:
        begin = time.perf_counter()
        sending = begin_round(server, held)
        requests = requests_of(server, held, "train", sending.who, sending.sent)
        own = time.perf_counter() - begin
        came: list[Reply] = []
        # Whether an answer is used does not count: the same request would have the same answer.
        least = min(policy.least, len(requests))
        while len(came) < least:
            asked = time.monotonic()
            told = [readable(server, reply, lengths) for reply in transport.exchange(requests, policy.deadline)]
            came = list(answers(told, policy, int(held.state.round), say))
            if len(came) < least:
                # Nodes that fail at once are not asked again at once.
                time.sleep(max(0.0, policy.deadline - (time.monotonic() - asked)))
        replies = {reply.client: reply for reply in used(came, int(held.state.round), drop, say)}
        after = time.perf_counter()
        messages = {terms.trained.index(party): reply.arrays for party, reply in replies.items()}
        result = finish_round(server, held, sending, messages)
        if not result.finite:
            raise UserError(
                f"the server's state has NaN or infinity after round {int(held.state.round) + 1}; expected finite "
                "numbers; lower method.server_learning_rate or method.client_learning_rate"
            )
        own += time.perf_counter() - after
        held = result.held
        seconds = time.perf_counter() - begin
        record = round_record(server, result, sending, came, replies) | {
            "bytes_down": sum(bytes_of(request.arrays) for request in requests),
            **seconds_of(seconds, own, came),
        }
        if is_due(config, int(held.state.round)):
            record |= evaluate(held)
            record["seconds_evaluation"] = time.perf_counter() - begin - seconds
        yield Progress(record["round"], [record], held, seconds)


def round_record(
    server: ServerPrograms,
    result: DeployedRound,
    sending: Sending,
    came: Sequence[Reply],
    replies: Mapping[int, Reply],
) -> Record:
    """A round's record, without its seconds: `came` are the answers of the round, `replies` those that were used."""
    terms, held = server.agreed.terms, result.held
    parties = [terms.trained[client] for client in sending.who]
    # Nodes that protect their samples keep their losses to themselves.
    losses = [loss_of(replies.get(party)) for party in parties]
    told = [loss for loss in losses if loss is not None]
    everyone = {reply.client: reply for reply in came}
    dropped = [party for party in parties if party in everyone and party not in replies]
    return {
        "round": int(held.state.round),
        "train_loss": float(np.mean(told)) if told else None,
        "client_loss": losses,
        **({} if result.loss is None else {"server_loss": result.loss}),
        **privacy_figures(server.agreed, held.lengths, int(held.state.round), parties, everyone, result.epsilon),
        "participants": parties,
        **({"dropped": dropped} if dropped else {}),
        "missing": [party for party in parties if party not in replies],
        "bytes_up": sum(bytes_of(reply.arrays) for reply in came),
        "compiled": sum(int(reply.facts["compiled"]) for reply in came),
    }


def seconds_of(seconds: float, own: float, came: Sequence[Reply]) -> Record:
    """The parts of a round's `seconds`, of which the server worked for `own`."""
    nodes = max(float(reply.facts["seconds"]) for reply in came)
    return {
        "seconds": seconds,
        "seconds_server": own,
        "seconds_node": nodes,
        "seconds_transport": seconds - own - nodes,
    }


def loss_of(reply: Reply | None) -> float | None:
    """The mean loss that a client sent; None if it sent none, or trained on no sample."""
    loss = float(reply.facts["loss"]) if reply and "loss" in reply.facts else math.nan
    return None if math.isnan(loss) else loss


def readable(server: ServerPrograms, reply: Reply, lengths: Mapping[int, int]) -> Reply:
    """A reply to a request to train, with an error instead where it lacks what every such reply has, or where the
    client's samples are no longer as many as in `lengths`, by party."""
    privacy = server.agreed.plan.privacy
    numbers = (*NUMBERS, *(("privacy_epsilon",) if privacy and privacy.samples else ()))
    try:
        if not reply.error:
            checked_leaves(reply.arrays, server.shapes.message, "its message")
            for name in (*numbers, *(("loss",) if "loss" in reply.facts else ())):
                check_number(reply.facts[name], finite=name not in DIVERGING)
            if changed := changed_length(lengths[reply.client], reply.facts["samples"]):
                raise UserError(f"it {changed}")
    except UserError as error:
        return Reply(reply.client, {}, {}, str(error))
    except (KeyError, TypeError, ValueError, OverflowError):
        words = ", ".join(f"{name}={reply.facts.get(name)!r}" for name in numbers)
        return Reply(reply.client, {}, {}, f"its answer has {words}; expected finite numbers; see the node's program")
    return reply


def check_number(fact: object, finite: bool) -> None:
    """Raises a `TypeError` or a `ValueError` for a fact that is no number, or no finite one."""
    if not isinstance(fact, int | float):
        raise TypeError(fact)
    if finite and not math.isfinite(fact):
        raise ValueError(fact)


def answers(told: Sequence[Reply], policy: Policy, round_: int, say: Say) -> Iterator[Reply]:
    """The replies that answer the round's requests. Raises like `run_rounds`."""
    for reply in told:
        if reply.error:
            if not policy.deadline:
                raise UserError(f"client {reply.client}: {reply.error}")
            say(f"round {round_ + 1} goes on without client {reply.client}: {reply.error}")
        elif int(reply.facts["round"]) != round_:
            late = int(reply.facts["round"]) + 1
            say(
                f"round {round_ + 1} goes on without client {reply.client}: its answer, for round {late}, came too late"
            )
        else:
            yield reply


def used(came: Sequence[Reply], round_: int, drop_nonfinite: bool, say: Say) -> Iterator[Reply]:
    """The answers that are used in the round. Raises like `run_rounds`."""
    for reply in came:
        if largest_of(reply) < SQUARED_OVERFLOWS:
            yield reply
        elif drop_nonfinite:
            words = "its answer has numbers that are not finite, or too large"
            say(f"round {round_ + 1} goes on without client {reply.client}: {words}")
        else:
            raise UserError(
                f"client {reply.client} sent numbers that are not finite, or too large, in round {round_ + 1}; "
                "expected finite ones; lower method.client_learning_rate, or set config.drop_nonfinite=True"
            )


def largest_of(reply: Reply) -> float:
    """The largest magnitude of an answer's numbers, infinite where one is NaN.

    What the client says counts its new state, too, which it keeps; but a hostile client says what it likes.
    """
    said = float(reply.facts["largest"])
    return math.inf if math.isnan(said) else max(said, float(largest_magnitude(reply.arrays)))
