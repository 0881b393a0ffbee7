"""Federations in one process of which something goes wrong."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fdgjax.config import make_config, read_config
from fdgjax.deploy.message_log import MESSAGES, Audited
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import ServerPrograms, make_server
from fdgjax.deploy.terms import agree
from fdgjax.deploy.wire import Reply, Request
from tests.deploy.test_request_handlers import Direct
from tests.deploy.trial import Trial, compare, make_trial


@pytest.fixture(scope="module")
def trial(cache: Path, perceptron: None) -> Trial:
    """SCAFFOLD keeps state at both sides."""
    config = make_config("scaffold", "rotated_digits")
    config.model.name = "perceptron"
    config.data.cache_dir, config.data.clients = str(cache), 2
    config.update({"rounds": 3, "local_epochs": 1, "batch_size": 6, "devices": 1})
    return make_trial(read_config(config), most=12)


@pytest.fixture(scope="module")
def server(trial: Trial) -> ServerPrograms:
    return make_server(agree(trial.terms), trial.server)


class Faulty(Direct):
    """A transport whose `fault(round, replies, requests)` changes what comes of a request to train."""

    def __init__(self, settings: Sequence[NodeSettings]) -> None:
        super().__init__(settings)
        self.asked: list[Request] = []

    def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
        del round_
        return replies

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        replies = super().exchange(requests, deadline)
        if requests[0].action != "train":
            return replies
        self.asked += requests
        return self.fault(int(requests[0].facts["round"]), replies)


def run(server: ServerPrograms, transport: Direct, folder: Path, deadline: float = 0.0) -> list[str]:
    """All rounds, with the server's log; what is said."""
    said = list[str]()
    there = Audited(transport, folder / "server" / MESSAGES)
    run_rounds(server, there, folder / "server", Policy(deadline), said.append)
    return said


def is_simulated(trial: Trial, folder: Path) -> bool:
    found = compare(trial, folder)
    return max(found.server, found.rows) <= 1e-5 * max(1, found.largest)


def one_line(reply: Reply, *words: str) -> None:
    assert reply.error
    assert "\n" not in reply.error
    for word in ("expected", *words):
        assert word in reply.error
