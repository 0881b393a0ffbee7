"""The server's rounds over any transport: requests, replies, deadlines, checkpoints and records."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from fdgjax.deploy.placement import Leaves, by_path, unseen_from_server, with_leaves
from fdgjax.deploy.privacy import guard_of_server, privacy_figures
from fdgjax.deploy.server import DeployedState, ServerPrograms, begin_round, finish_round
from fdgjax.deploy.terms import Terms, to_words
from fdgjax.deploy.wire import Reply, Request, Transport, payload
from fdgjax.engine.round import SQUARED_OVERFLOWS
from fdgjax.evaluation.metrics import Record
from fdgjax.run.loop import Progress, follow_rounds, keep_records
from fdgjax.run.records import History, open_checkpoints
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder, write_bytes, write_lines
from fdgjax.utils.variables import flatten

Say = Callable[[str], None]


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
    make_folder(folder)
    server = server if server.guard else server._replace(guard=guard_of_server(server.agreed, folder))
    checkpoints = open_checkpoints(folder / "checkpoints", say)
    try:
        joined = transport.join(to_words(terms), terms.clients)
        lengths = np.array([joined[client] for client in range(terms.clients)], np.int32)
        held, records = server.first(lengths), [list[Record]()]
        if (found := checkpoints.restore(held)) is not None:
            held, records = on_host(found[0]), found[1].records
            check_lengths(held, lengths)
            say(f"continuing after round {int(held.state.round)} of {terms.config.rounds}")

        def save(progress: Progress) -> None:
            checkpoints.save(progress.number, progress.state, History(records, 0.0))

        def log(progress: Progress) -> None:
            write_lines(folder / "rounds.jsonl", records[0])
            say(in_words(progress.records[0], terms))

        last = follow_rounds(rounds(server, transport, held, policy), [keep_records(records), save, log])
        if last is not None and last.state is not None:
            held = last.state
        deliver(server, transport, held, policy, folder, say)
    finally:
        checkpoints.close()
    return held


def on_host(held: DeployedState) -> DeployedState:
    """The state with `lengths` and `accepted` as NumPy arrays."""
    return held._replace(lengths=np.asarray(held.lengths), accepted=np.array(held.accepted))


def check_lengths(held: DeployedState, lengths: np.ndarray) -> None:
    """Raises a `UserError` if a client's number of samples has changed since the run began."""
    for client, (before, now) in enumerate(zip(held.lengths, lengths, strict=True)):
        if before != now:
            raise UserError(
                f"client {client} holds {now} samples and held {before} when this run began; expected the same; "
                "restore them, or begin again with another workdir"
            )


def rounds(server: ServerPrograms, transport: Transport, held: DeployedState, policy: Policy) -> Iterator[Progress]:
    """The rounds up to the configured number, each with its `DeployedState`. Raises like `run_rounds`."""
    config = server.agreed.terms.config
    drop = config.drop_nonfinite or server.agreed.plan.defence is not None
    while int(held.state.round) < config.rounds:
        begin = time.perf_counter()
        sending = begin_round(server, held)
        requests = requests_of(server, held, "train", sending.who, sending.sent)
        own = time.perf_counter() - begin
        replies: dict[int, Reply] = {}
        while len(replies) < min(policy.least, len(requests)):
            told = transport.exchange(requests, policy.deadline)
            replies = {reply.client: reply for reply in used(told, policy, int(held.state.round), drop)}
        after = time.perf_counter()
        result = finish_round(server, held, sending, {client: reply.arrays for client, reply in replies.items()})
        if not result.finite:
            raise UserError(
                f"the server's state has NaN or infinity after round {int(held.state.round) + 1}; expected finite "
                "numbers; lower method.server_learning_rate or method.client_learning_rate"
            )
        own += time.perf_counter() - after
        held = result.held
        # Nodes that protect their samples keep their losses to themselves.
        losses = [float(reply.facts["loss"]) for reply in replies.values() if "loss" in reply.facts]
        nodes = max(float(reply.facts["seconds"]) for reply in replies.values())
        seconds = time.perf_counter() - begin
        record: Record = {
            "round": int(held.state.round),
            "train_loss": float(np.mean(losses)) if losses else None,
            **({} if result.loss is None else {"server_loss": result.loss}),
            **privacy_figures(
                server.agreed, held.lengths, int(held.state.round), sending.who.tolist(), replies, result.epsilon
            ),
            "participants": [int(client) for client in sending.who],
            "missing": [int(client) for client in sending.who if int(client) not in replies],
            "bytes_down": sum(payload(request.arrays) for request in requests),
            "bytes_up": sum(payload(reply.arrays) for reply in replies.values()),
            "compiled": sum(int(reply.facts["compiled"]) for reply in replies.values()),
            "seconds": seconds,
            "seconds_server": own,
            "seconds_node": nodes,
            "seconds_transport": seconds - own - nodes,
        }
        yield Progress(record["round"], [record], held, seconds)


def requests_of(
    server: ServerPrograms, held: DeployedState, action: str, who: Sequence[int] | np.ndarray, sent: Sequence[Leaves]
) -> list[Request]:
    """The requests of a round."""
    words = to_words(server.agreed.terms)
    elsewhere = json.dumps(sorted(server.placement.written))
    return [
        Request(
            action=action,
            client=int(client),
            terms=words,
            arrays=leaves,
            facts={"round": int(held.state.round), "accepted": int(held.accepted[int(client)]), "elsewhere": elsewhere},
        )
        for client, leaves in zip(who, sent, strict=True)
    ]


def used(told: Sequence[Reply], policy: Policy, round_: int, drop_nonfinite: bool) -> Iterator[Reply]:
    """The replies that are used in the round. Raises like `run_rounds`."""
    for reply in told:
        if reply.error:
            if not policy.deadline:
                raise UserError(f"client {reply.client}: {reply.error}")
            continue
        if float(reply.facts["largest"]) < SQUARED_OVERFLOWS:
            yield reply
        elif not drop_nonfinite:
            raise UserError(
                f"client {reply.client} sent numbers that are not finite, or too large, in round {round_ + 1}; "
                "expected finite ones; lower method.client_learning_rate, or set config.drop_nonfinite=True"
            )


def deliver(
    server: ServerPrograms, transport: Transport, held: DeployedState, policy: Policy, folder: Path, say: Say
) -> None:
    """After the last round: sends each client what its model is computed from, and writes the model for an unseen
    domain if the server alone can compute it."""
    from safetensors.numpy import save

    method = server.agreed.method
    count = server.agreed.terms.clients
    sent = [sent_to(server, held, client) for client in range(count)]
    told = transport.exchange(requests_of(server, held, "finish", range(count), sent), policy.deadline)
    failed = [f"client {reply.client}: {reply.error}" for reply in told if reply.error]
    say(f"{len(told) - len(failed)} of {count} clients have written their model" + "".join(f"; {x}" for x in failed))
    if not unseen_from_server(method, server.federation, server.placement):
        say("the model for an unseen domain needs what is at the nodes: the server has none")
        return
    rows = with_leaves(server.rows_like, held.state.clients, lambda leaf: np.zeros((count, *leaf.shape), leaf.dtype))
    models = flatten(jax.device_get(method.unseen(held.state.server, rows)))
    file = folder / "model.safetensors"
    words: Mapping[str, str] = {"terms": to_words(server.agreed.terms)}
    write_bytes(file, save({path: np.ascontiguousarray(leaf) for path, leaf in models.items()}, metadata=dict(words)))
    say(f"the model for unseen domains: {file}")


def sent_to(server: ServerPrograms, held: DeployedState, client: int) -> Leaves:
    """What a client would be sent in a further round."""
    row = with_leaves(
        server.rows_like,
        {path: leaf[client] for path, leaf in held.state.clients.items()},
        lambda leaf: np.zeros(leaf.shape, leaf.dtype),
    )
    return by_path(jax.device_get(server.agreed.method.send(held.state.server, row)))


def in_words(record: Record, terms: Terms) -> str:
    """A round in one line."""
    here = len(record["participants"]) - len(record["missing"])
    without = f", without {record['missing']}" if record["missing"] else ""
    loss = "loss withheld" if record["train_loss"] is None else f"loss {record['train_loss']:.4f}"
    spent = f", epsilon {record['privacy_epsilon']:.4g}" if "privacy_epsilon" in record else ""
    return (
        f"round {record['round']} of {terms.config.rounds}: {loss}{spent}, {here} of "
        f"{len(record['participants'])} clients{without}; {record['seconds']:.1f} s: slowest node "
        f"{record['seconds_node']:.1f}, server {record['seconds_server']:.1f}, transport and starting processes "
        f"{record['seconds_transport']:.1f}; {record['compiled']} programs compiled; "
        f"{record['bytes_down']:,} bytes down, {record['bytes_up']:,} up"
    )
