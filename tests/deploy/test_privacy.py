"""Noise of real parties: the simulation's from its seed, a party's own from its secret, and each answer is paid for."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fdgjax.config import make_config, read_config
from fdgjax.contract import Method, Model
from fdgjax.deploy.account import ACCOUNT, SECRET, Guard, make_guard, read_account
from fdgjax.deploy.leaves import by_path
from fdgjax.deploy.node import NEVER, Answer, Node, NodeState, answer, make_node
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.privacy import guard_of_node, refuse_uncovered, with_noise
from fdgjax.deploy.request_handlers import serve
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import begin_round, finish_round, make_server
from fdgjax.deploy.terms import Agreed, OwnSamples, Terms, agree, from_words, to_words
from fdgjax.deploy.wire import Reply, Request
from fdgjax.engine.exposure import of_clients, of_samples
from fdgjax.engine.privacy import Exposure, budget, needed_noise
from fdgjax.engine.privacy.noise import Privacy
from fdgjax.experiments import batching_of
from fdgjax.utils.errors import UserError
from tests.deploy.parties import PARTIES, Parties, apart, one_round, parties, simulated
from tests.deploy.test_account import COST
from tests.deploy.test_request_handlers import Direct
from tests.deploy.trial import Trial, compare, make_trial, node_settings
from tests.engine.privacy.test_noise import check_gaussian, without_gradient
from tests.runs import perceptron
from tests.toy_models import frozen_model
from tests.toys import BATCH, flat, make_plan

__all__ = ["perceptron"]

CLIP, NOISE, RATE = 0.7, 1.3, 0.1
SAMPLES, CLIENTS = Privacy(CLIP, NOISE, samples=True), Privacy(CLIP, NOISE)
CHOSEN = {"selection": "validation", "method.weighting": "uniform"}
FROZEN = frozen_model()
PUBLIC = Guard(lambda release: np.uint32(0), lambda release: 0.0)
"""The simulation's randomness, which every party knows: only a test can hand it to a node or a server."""


def secret_guards(folder: Path) -> list[Guard]:
    """One of a secret of its own for each node, and for the server."""
    return [make_guard(folder / str(party), "run", COST) for party in range(PARTIES + 1)]


def still(method: Method) -> Method:
    """Nothing is learnt, and steps are plain: what moves is noise."""
    optimizer = optax.with_extra_args_support(optax.sgd(RATE))
    return method._replace(objective=without_gradient, optimizer=optimizer)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    """Nodes that send their own noise alone."""
    return parties("fedavg", SAMPLES, secret_guards(tmp_path_factory.mktemp("nodes")), still)


def ask(those: Parties, client: int, round_: int = 0, shift: float = 0.0) -> Answer:
    """A node's answer to the server's first state, moved by `shift`."""
    sent = begin_round(those.server, those.server.first(those.lengths)).sent[client]
    moved = {path: leaf + np.float32(shift) for path, leaf in sent.items()}
    return answer(those.nodes[client], moved, round_, NEVER, those.server.placement.written, None)[0]


def as_row(made: Answer) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in made.message.values()])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "privacy", "model"),
    [
        ("fedavg", SAMPLES, ""),
        ("fedavg", CLIENTS, ""),
        ("fedavg", SAMPLES, FROZEN),
        ("fedavg", CLIENTS, FROZEN),
        ("ditto", SAMPLES, ""),
        ("hfedf", SAMPLES, ""),
        ("scaffold", CLIENTS, ""),
        ("feddyn", CLIENTS, ""),
    ],
)
def test_from_the_simulations_seed_come_the_simulations_numbers(
    name: str, privacy: Privacy, model: str | Model
) -> None:
    those = parties(name, privacy, [PUBLIC] * (PARTIES + 1), model=model)
    held, kept = those.server.first(those.lengths), dict[int, NodeState]()
    for _ in range(2):
        result, kept = one_round(those, held, kept)
        held = result.held
    found = apart(those, held, kept, simulated(those, 2))
    assert max(found.server, found.rows) <= 2e-4 * max(1, found.largest)


def deviation(length: int) -> float:
    """Of a message: SGD takes ceil(N / B) steps, each against a noise of z C over the expected batch, min(B, N)."""
    return RATE * NOISE * CLIP * (-(-length // BATCH)) ** 0.5 / min(BATCH, length)


@pytest.mark.slow
def test_nodes_send_the_noise_that_was_accounted_for_each_its_own_and_in_each_round_another(noisy: Parties) -> None:
    lengths = [int(length) for length in noisy.lengths]
    rows = [
        [as_row(ask(noisy, client, round_)) / deviation(lengths[client]) for round_ in range(20)] for client in (0, 1)
    ]
    check_gaussian(np.concatenate(rows), 1.0)


@pytest.mark.slow
def test_the_same_request_has_the_same_answer_and_another_model_has_other_noise(noisy: Parties) -> None:
    first, again, other = as_row(ask(noisy, 1)), as_row(ask(noisy, 1)), as_row(ask(noisy, 1, shift=1e-3))
    np.testing.assert_array_equal(first, again)
    # With the same noise, the difference of the two would show what noise hides.
    check_gaussian(np.stack([first, other]), deviation(int(noisy.lengths[1])))


@pytest.mark.slow
def test_what_no_noise_covers_is_not_sent(noisy: Parties) -> None:
    made = ask(noisy, 0)
    assert made.loss is None
    assert made.epsilon is not None
    assert made.largest >= np.abs(as_row(made)).max()


@pytest.mark.slow
def test_the_servers_noise_is_what_was_accounted_for_also_without_a_client(tmp_path: Path) -> None:
    those = parties("fedavg", CLIENTS, secret_guards(tmp_path), still)
    first = those.server.first(those.lengths)
    sending, shapes = begin_round(those.server, first), those.server.shapes.message
    nothing = {path: np.zeros(leaf.shape, leaf.dtype) for path, leaf in by_path(shapes).items()}

    def moved(round_: int, clients: tuple[int, ...]) -> np.ndarray:
        held = first._replace(state=first.state._replace(round=jnp.int32(round_)))
        after = finish_round(those.server, held, sending, dict.fromkeys(clients, nothing)).held
        return flat(after.state.server.variables) - flat(first.state.server.variables)

    rows = [moved(round_, clients) for round_ in range(15) for clients in ((0, 1), (0,))]
    check_gaussian(np.stack(rows), NOISE * CLIP / PARTIES)
    np.testing.assert_array_equal(rows[0], moved(0, (0, 1)))


@pytest.mark.slow
def test_nobody_draws_noise_from_the_seed_that_all_know(noisy: Parties) -> None:
    own = OwnSamples(np.zeros((9, *noisy.nodes[0].agreed.terms.sample_shape), np.uint8), np.zeros(9, np.int32))
    with pytest.raises(UserError, match="client 0 has no secret for its noise"):
        make_node(noisy.nodes[0].agreed, 0, own)
    agreed = noisy.server.agreed._replace(plan=make_plan()._replace(privacy=CLIENTS))
    those = noisy.server._replace(agreed=agreed, guard=None)
    first = those.first(noisy.lengths)
    with pytest.raises(UserError, match="the server has no secret for its noise"):
        finish_round(those, first, begin_round(those, first), {})


@pytest.fixture(scope="module")
def trial(cache: Path, perceptron: None) -> Trial:
    config = make_config("fedavg", "rotated_digits")
    config.model.name = "perceptron"
    config.method.weighting = "uniform"
    config.data.cache_dir, config.data.clients = str(cache), 2
    config.update({"rounds": 2, "local_epochs": 1, "batch_size": 6, "devices": 1})
    config.privacy.update({"unit": "sample", "epsilon": 6.0, "delta": 1e-3})
    return make_trial(read_config(config), most=12)


class Listening(Direct):
    """Keeps all replies."""

    def __init__(self, settings: Sequence[NodeSettings], last: int = 99) -> None:
        super().__init__(settings, last)
        self.heard: list[Reply] = []

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        self.heard += super().exchange(requests, deadline)
        return self.heard[-len(requests) :]


def records_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_all_rounds_cost_what_was_asked_for_and_a_server_that_died_pays_nothing_twice(
    trial: Trial, tmp_path: Path
) -> None:
    """The server dies after the clients of the last round trained; it has the simulation's noise and epsilon."""
    settings, said = node_settings(trial, tmp_path), list[str]()
    direct = Listening(settings, last=1)
    terms = with_noise(trial.terms, direct)
    exposures = [Exposure("poisson", 6, 12, 2)]
    assert exposures == of_samples(0, batching_of(terms.config), [trial.experiment.train])
    assert terms.noise == needed_noise(exposures, 6.0, 1e-3, 2)
    assert from_words(to_words(terms)) == terms
    server = make_server(agree(terms), trial.server)
    with pytest.raises(KeyboardInterrupt):
        run_rounds(server, direct, tmp_path / "server", Policy(), said.append)
    direct.last = 99
    run_rounds(server, direct, tmp_path / "server", Policy(), said.append)
    spent = budget(exposures, terms.noise, 1e-3)
    for number, record in enumerate(records_in(tmp_path / "server"), start=1):
        assert record["train_loss"] is None
        assert record["privacy_epsilon"] == pytest.approx(spent(number))
        assert record["client_epsilon"] == pytest.approx([spent(number)] * 2)
    assert spent(2) <= 6.0
    assert any(line.startswith(f"round 2 of 2: loss withheld, epsilon {spent(2):.4g}, 2 of 2") for line in said)
    assert not any("loss" in reply.facts or reply.error for reply in direct.heard)
    for one in settings:
        (account,) = read_account(one.states / ACCOUNT).values()
        assert len(account) == 2
        assert (one.states / SECRET).stat().st_mode & 0o777 == 0o600
    assert len({(one.states / SECRET).read_bytes() for one in settings}) == 2
    assert not (tmp_path / "server" / SECRET).exists()


@pytest.mark.slow
def test_over_requests_the_simulations_seed_gives_the_simulations_numbers(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = Direct(node_settings(trial, tmp_path))
    # The simulation's noise follows from more samples than the parties are given here.
    terms = trial.terms._replace(noise=trial.experiment.facts["privacy_noise"])
    agreed = agree(terms)

    def public(settings: NodeSettings, agreed: Agreed, own: OwnSamples) -> Node:
        return make_node(agreed, settings.client, own, PUBLIC)

    monkeypatch.setattr("fdgjax.deploy.request_handlers.guarded_node", public)
    run_rounds(make_server(agreed, trial.server), direct, tmp_path / "server", Policy(), list[str]().append)
    found = compare(trial._replace(terms=terms), tmp_path)
    assert max(found.server, found.rows) <= 1e-5 * found.largest


def of_clients_alone(trial: Trial, **changes: Any) -> Terms:
    privacy = dataclasses.replace(trial.terms.config.privacy, unit="client", **changes)
    return trial.terms._replace(config=dataclasses.replace(trial.terms.config, privacy=privacy))


@pytest.mark.slow
def test_a_trusted_server_keeps_its_secret_and_records_the_simulations_epsilon(trial: Trial, tmp_path: Path) -> None:
    direct = Listening(node_settings(trial, tmp_path))
    terms = with_noise(of_clients_alone(trial, epsilon=20.0), direct)
    exposures = of_clients(0, batching_of(terms.config), [trial.experiment.train])
    assert terms.noise == needed_noise(exposures, 20.0, 1e-3, 2)
    run_rounds(make_server(agree(terms), trial.server), direct, tmp_path / "server", Policy(), list[str]().append)
    found, spent = records_in(tmp_path / "server"), budget(exposures, terms.noise, 1e-3)
    assert [record["privacy_epsilon"] for record in found] == pytest.approx([spent(1), spent(2)])
    assert all(record["train_loss"] is not None for record in found)
    assert (tmp_path / "server" / SECRET).stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(f"node*/states/{SECRET}"))


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("fedavg", {"method.weighting": "samples"}, "weighs clients by their numbers of samples"),
        ("fedbn", {"model.unit": "norm"}, "variables besides parameters"),
        ("feddg", {}, "compute something from their samples before they train"),
        *(
            ("fedavg", {"privacy.unit": unit, **CHOSEN}, "no noise covers the choice of a round")
            for unit in ("sample", "client")
        ),
        (
            "fedavg",
            {"privacy.unit": "client", "privacy.where": "clients"},
            "where got 'clients', but the server sees",
        ),
    ],
)
def test_what_shows_more_is_refused_as_in_the_simulation(
    method: str, changes: dict[str, object], words: str, perceptron: None
) -> None:
    config = make_config(method)
    config.model.name = "perceptron"
    config.privacy.update({"unit": "sample", "noise": 1.0})
    config.update_from_flattened_dict(changes)
    with pytest.raises(UserError, match=words):
        agree(Terms(read_config(config), ("a", "b"), (8, 8, 1), 2))


def test_the_unseen_party_has_no_limit_of_its_own_and_is_told_when_it_joins(trial: Trial, tmp_path: Path) -> None:
    left_out = trial.terms._replace(clients=1, unseen=1)
    (_, own), join = node_settings(trial, tmp_path), Request("join", -1, to_words(left_out), {}, {})
    said = serve(own._replace(epsilon=3.0), join).error
    assert said.startswith("client 1 is unseen in this run and would send exact counts, which no noise covers, but")
    assert "epsilon=3; expected a client that trains" in said
    assert not serve(own, join).error
    refuse_uncovered("evaluate", left_out, 1, 0.0)


@pytest.mark.slow
def test_a_node_answers_nothing_that_its_settings_do_not_cover(trial: Trial, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'evaluate' was asked .* no noise covers its answer"):
        refuse_uncovered("evaluate", trial.terms, 0, 0.0)
    (own, *_) = node_settings(trial, tmp_path)
    limited, join = own._replace(epsilon=3.0), Request("join", -1, to_words(trial.terms), {}, {})
    assert not serve(limited, join).error
    assert (
        "but node-config has epsilon=3" in serve(limited, join._replace(terms=to_words(of_clients_alone(trial)))).error
    )
    with pytest.raises(UserError, match="lack the noise that follows from it"):
        guard_of_node(agree(trial.terms), 0, 12, tmp_path, "run", 0.0)
    with pytest.raises(UserError, match=r"noise multiplier .* got nan"):
        guard_of_node(agree(trial.terms._replace(noise=math.nan)), 0, 12, tmp_path, "run", 0.0)
    agreed = agree(trial.terms._replace(noise=2.0))
    loose = dataclasses.replace(agreed.terms.config.privacy, delta=0.5)
    config = dataclasses.replace(agreed.terms.config, privacy=loose)
    with pytest.raises(UserError, match=r"config.privacy.delta got 0.5, with which one of client 0's 12 samples"):
        guard_of_node(agreed._replace(terms=agreed.terms._replace(config=config)), 0, 12, tmp_path, "run", 3.0)
