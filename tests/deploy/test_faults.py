"""Messages that are late or come twice, and nodes that do not fit: one line, nothing is lost, and the others go on."""

import dataclasses
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from fdgjax.config import make_config, read_config
from fdgjax.config.schema import DefenceConfig
from fdgjax.deploy.image_folder import decoded_folder
from fdgjax.deploy.kept import facts_of_run, keep_model, kept_model, read_kept, state_file
from fdgjax.deploy.node import NEVER
from fdgjax.deploy.request_handlers import serve
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import ServerPrograms, make_server
from fdgjax.deploy.terms import agree, to_words
from fdgjax.deploy.wire import WORKDIR, Reply, Request
from fdgjax.utils.errors import UserError
from tests.deploy.faulty import Faulty, is_simulated, one_line, run, server, trial
from tests.deploy.test_request_handlers import Direct
from tests.deploy.trial import Trial, make_trial, node_settings
from tests.runs import perceptron

__all__ = ["perceptron", "server", "trial"]


# Messages that are late or come twice


@pytest.mark.slow
@pytest.mark.parametrize("when", ["at once", "a round later", "after all rounds"])
def test_a_message_that_is_delivered_twice_changes_nothing(
    when: str, trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    class Twice(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            old = {"at once": self.asked[-2:], "a round later": self.asked[:-2], "after all rounds": []}[when]
            again = [self.ask(one, one.client) for one in old]
            if when == "at once":
                for first, second in zip(replies, again, strict=True):
                    assert all(np.array_equal(first.arrays[path], leaf) for path, leaf in second.arrays.items())
            for reply in again if when != "at once" else []:
                one_line(reply)
            return replies

    transport = Twice(node_settings(trial, tmp_path))
    run(server, transport, tmp_path)
    assert is_simulated(trial, tmp_path)
    for one in transport.asked if when == "after all rounds" else []:
        transport.ask(one, one.client)
    assert is_simulated(trial, tmp_path)


@pytest.mark.slow
def test_a_request_of_the_first_round_that_comes_late_does_not_begin_anew(
    trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    transport = Faulty(node_settings(trial, tmp_path))
    run(server, transport, tmp_path)
    file = state_file(transport.settings[0], trial.terms)
    before = file.read_bytes()
    one_line(transport.ask(transport.asked[0], 0), "round 1", "has trained round 3", "the state stays as it is")
    assert file.read_bytes() == before
    begun_anew = transport.asked[0]._replace(run="another")
    assert not transport.ask(begun_anew, 0).error
    kept = read_kept(file)
    assert kept is not None
    assert (kept.trained, kept.run) == (0, "another")


def test_an_old_request_to_evaluate_that_comes_late_replaces_no_later_model(tmp_path: Path) -> None:
    def rounds_kept(round_: int, selected: int, run: str) -> list[int]:
        request = Request("evaluate", 0, "", {}, {WORKDIR: "here"}, run)
        keep_model(tmp_path, {"w": np.full(1, round_)}, selected, {"round": str(round_)} | facts_of_run(request))
        return [round_ for round_ in range(1, 9) if kept_model(tmp_path, round_, request)]

    assert rounds_kept(1, NEVER, "first") == [1]
    assert rounds_kept(3, 1, "first") == [1, 3]
    assert rounds_kept(4, 3, "first") == [3, 4]
    assert rounds_kept(2, 1, "first") == [3, 4]
    # A server that died goes back to its checkpoint: its run has another name then.
    assert rounds_kept(2, 1, "second") == [2]
    assert kept_model(tmp_path, 2, Request("finish", 0, "", {}, {WORKDIR: "elsewhere"})) is None


@pytest.mark.slow
def test_a_model_that_an_earlier_run_left_is_not_delivered_and_one_from_before_a_restart_is(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(trial.terms.config, selection="validation", eval_every=1, rounds=2)
    server = make_server(agree(trial.terms._replace(config=config)), trial.server)

    class Runs(Direct):
        run, dies, misses = "", False, False

        def ask(self, request: Request, client: int) -> Reply:
            return super().ask(request._replace(run=self.run), client)

        def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
            if self.dies and requests[0].action == "finish":
                raise KeyboardInterrupt
            self.away = {1} if self.misses and requests[0].action in ("train", "evaluate") else set()
            return super().exchange(requests, deadline)

    def said(run: str, folder: str, dies: bool = False, misses: bool = False) -> str:
        nodes.run, nodes.dies, nodes.misses, lines = run, dies, misses, list[str]()
        with pytest.raises(KeyboardInterrupt) if dies else nullcontext():
            run_rounds(server, nodes, tmp_path / folder, Policy(1.0), lines.append)
        return lines[-2]

    nodes = Runs(node_settings(trial, tmp_path))
    said("first", "a", dies=True)
    assert said("second", "a") == "2 of 2 clients have written their model"
    (of_first,) = (tmp_path / "node1" / "states").glob("*/model.safetensors")
    before = of_first.read_bytes()
    monkeypatch.setattr("fdgjax.deploy.delivery.reported", lambda records, rule: records[0])
    line = said("third", "b", misses=True)
    assert line.endswith("client 1: the last round's model, as the selected one, of round 1, was not evaluated here")
    assert of_first.read_bytes() != before


@pytest.mark.slow
def test_an_answer_of_an_earlier_round_is_not_used(trial: Trial, server: ServerPrograms, tmp_path: Path) -> None:
    class Late(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            if round_ == 0:
                self.late = replies[1]
                return replies[:1]
            return [replies[0], self.late] if round_ == 1 else replies

    said = run(server, Late(node_settings(trial, tmp_path)), tmp_path, deadline=1.0)
    assert "round 2 goes on without client 1: its answer, for round 1, came too late" in said
    records = [json.loads(line) for line in (tmp_path / "server" / "rounds.jsonl").read_text().splitlines()]
    assert [record["missing"] for record in records] == [[1], [1], []]


@pytest.mark.slow
def test_with_a_deadline_a_nodes_mistake_is_said_and_the_others_go_on(
    trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    class Mistaken(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            unreadable = replies[1]._replace(facts={**replies[1].facts, "largest": "x"})
            return [replies[0], [replies[1], Reply(1, {}, {}, "its folder is empty"), unreadable][round_]]

    said = run(server, Mistaken(node_settings(trial, tmp_path)), tmp_path, deadline=1.0)
    assert "round 2 goes on without client 1: its folder is empty" in said
    assert any(
        line.startswith("round 3 goes on without client 1: its answer has round=2, largest='x'") for line in said
    )
    with pytest.raises(UserError, match=r"^client 1: its folder is empty$"):
        run(server, Mistaken(node_settings(trial, tmp_path / "b")), tmp_path / "b")


# Answers that are not finite


@pytest.mark.slow
def test_a_round_of_which_no_answer_is_finite_ends_as_in_the_simulation(
    cache: Path, perceptron: None, tmp_path: Path
) -> None:
    class Twice(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            assert len(self.asked) <= 2 * (round_ + 1), "the same requests are asked again"
            return replies

    config = make_config("fedavg", "rotated_digits")
    config.model.name, config.method.client_learning_rate = "perceptron", 1e30
    config.data.cache_dir, config.data.clients = str(cache), 2
    config.update({"rounds": 2, "local_epochs": 1, "batch_size": 6, "devices": 1, "drop_nonfinite": True})
    diverging = make_trial(read_config(config), most=12)
    said = run(
        make_server(agree(diverging.terms), diverging.server), Twice(node_settings(diverging, tmp_path)), tmp_path
    )
    assert is_simulated(diverging, tmp_path)
    for number in (1, 2):
        for client in (0, 1):
            assert any(line.startswith(f"round {number} goes on without client {client}: its answer") for line in said)
    records = [json.loads(line) for line in (tmp_path / "server" / "metrics.jsonl").read_text().splitlines()]
    assert [(record["dropped"], record["train_loss"]) for record in records] == [([0, 1], None)] * 2


@pytest.mark.slow
def test_a_client_that_sends_nan_is_left_out_whatever_it_says_of_it(trial: Trial, tmp_path: Path) -> None:
    class Lies(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            nan = {path: np.full_like(leaf, np.nan) for path, leaf in replies[0].arrays.items()}
            return [replies[0]._replace(arrays=nan, facts={**replies[0].facts, "largest": 1.0}), *replies[1:]]

    class Away(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            return replies[1:]

    config = dataclasses.replace(trial.terms.config, rounds=1, defence=DefenceConfig(clip="median"))
    defended = make_server(agree(trial.terms._replace(config=config)), trial.server)
    held = []
    for kind in (Lies, Away):
        transport, folder = kind(node_settings(trial, tmp_path / kind.__name__)), tmp_path / kind.__name__
        held.append(run_rounds(defended, transport, folder / "server", Policy(), list[str]().append).state)
    for lied, away in zip(*map(jax.tree.leaves, held), strict=True):
        np.testing.assert_array_equal(lied, away)


# Nodes that do not fit


@pytest.mark.parametrize("action", ["join", "train"])
def test_a_node_with_other_classes_is_told_which_are_expected(action: str, trial: Trial, tmp_path: Path) -> None:
    own = node_settings(trial, tmp_path)[0]
    (own.places.samples / "goose").mkdir()
    request = Request(action, 0, to_words(trial.terms), {}, {"round": 0, "accepted": -1, "elsewhere": "[]"})
    one_line(serve(own, request), "goose", "is no class of this federation", "rename it or move it away")


def test_images_of_another_size_are_scaled_to_the_federations(trial: Trial, tmp_path: Path) -> None:
    own = node_settings(trial, tmp_path)[0]
    for image in own.places.samples.rglob("*.png"):
        Image.open(image).resize((50, 40)).save(image)
    assert not serve(own, Request("join", -1, to_words(trial.terms), {}, {})).error
    found = decoded_folder(own.places.samples, trial.terms.class_names, trial.terms.sample_shape, tmp_path)
    assert found.inputs.shape[1:] == trial.terms.sample_shape


def test_a_message_of_another_network_is_no_answer(trial: Trial, tmp_path: Path) -> None:
    own = node_settings(trial, tmp_path)[0]
    facts: dict[str, Any] = {"round": 0, "accepted": -1, "elsewhere": "[]"}
    sent = {"['w']": np.zeros(3, np.float32)}
    one_line(serve(own, Request("train", 0, to_words(trial.terms), sent, facts)), "the same version of fdgjax")


@pytest.mark.slow
def test_a_client_whose_samples_became_fewer_ends_the_run_in_one_line(
    trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    class Dies(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            if round_ == 1:
                raise KeyboardInterrupt
            return replies

    settings = node_settings(trial, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(server, Dies(settings), tmp_path)
    next(settings[1].places.samples.rglob("*.png")).unlink()
    with pytest.raises(
        UserError, match=r"client 1 holds 11 samples and held 12 when this run began; expected the same"
    ):
        run(server, Faulty(settings), tmp_path)


@pytest.mark.slow
def test_a_client_whose_samples_become_fewer_during_the_run_is_noticed_in_that_round(
    trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    class Loses(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            if round_ == 0:
                next(self.settings[1].places.samples.rglob("*.png")).unlink()
            return replies

    line = "it holds 11 samples and held 12 when this run began; expected the same; restore them, or begin again"
    with pytest.raises(UserError, match=f"^client 1: {line}"):
        run(server, Loses(node_settings(trial, tmp_path / "a")), tmp_path / "a")
    said = run(server, Loses(node_settings(trial, tmp_path / "b")), tmp_path / "b", deadline=1.0)
    assert any(words.startswith(f"round 2 goes on without client 1: {line}") for words in said), said
