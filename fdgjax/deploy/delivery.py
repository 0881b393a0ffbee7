"""After the last round: each client's model is written at its node, and the model for unseen domains at the server."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fdgjax.config import Config
from fdgjax.deploy.folder import name_of
from fdgjax.deploy.kept import MODEL, facts_of_model, write_model
from fdgjax.deploy.node import NEVER
from fdgjax.deploy.request_handlers import instead_of
from fdgjax.deploy.requests import requests_of, sent_to, unseen_models
from fdgjax.deploy.server import DeployedState, ServerPrograms
from fdgjax.deploy.wire import SELECTED, WORKDIR, Fact, Say, Transport
from fdgjax.evaluation.metrics import Record
from fdgjax.evaluation.selection import judges, reported
from fdgjax.inference.classifier import UNSEEN
from fdgjax.run.selected import keeps_state


def deliver(
    server: ServerPrograms,
    transport: Transport,
    held: DeployedState,
    deadline: float,
    folder: Path,
    say: Say,
    records: Sequence[Record],
    selected: DeployedState | None,
) -> None:
    """After the last round: sends each client what its model is computed from, and writes the model for an unseen
    domain if the server alone can compute it; those of the selected round, if the config selects one by the clients'
    held-out samples."""
    config, count = server.agreed.terms.config, server.agreed.terms.clients
    chosen, state = delivered(records, config, held, selected)
    if keeps_state(config.selection) and not judges(records, config.selection):
        say(
            f"no client sent what config.selection={config.selection} compares rounds by, for too few samples of a "
            "class or in all (`smallest` in its node-config): the last round's model is taken"
        )
    more: Mapping[str, Fact] = {SELECTED: NEVER if chosen is None else chosen, WORKDIR: name_of(folder)}
    sent = [sent_to(server, held, client) for client in range(count)]
    told = transport.exchange(requests_of(server, held, "finish", range(count), sent, more), deadline)
    failed = [f"client {reply.client}: {reply.error}" for reply in told if reply.error]
    others = [
        f"client {reply.client}: {instead_of(chosen)}"
        for reply in told
        if chosen not in (None, config.rounds) and not reply.error and reply.facts.get(SELECTED) != chosen
    ]
    written = f"{len(told) - len(failed)} of {count} clients have written their model"
    say("; ".join([written, *failed, *others]))
    if not server.knows_unseen:
        say("the model for an unseen domain needs what the nodes keep, so that the server has none")
        return
    models = unseen_models(server, state)
    file = folder / MODEL
    last = config.rounds if chosen is None else chosen
    write_model(file, models, facts_of_model(server.agreed.terms, last, UNSEEN))
    say(f"the model for unseen domains{'' if chosen is None else f', of round {chosen}'}: {file}")


def delivered(
    records: Sequence[Record], config: Config, held: DeployedState, selected: DeployedState | None
) -> tuple[int | None, DeployedState]:
    """The round whose models are delivered, as the summary reports it, None for the last one where the config selects
    none; and its state: `held` is the last round's, `selected` as in `fdgjax.run.selected`."""
    chosen = reported(records, config.selection).get("round") if keeps_state(config.selection) else None
    if chosen == config.rounds:  # a longer run may not evaluate this round: `selected` may be an earlier one
        return chosen, held
    return (None, held) if chosen is None or selected is None else (chosen, selected)
