"""Rounds over requests and replies, from folders of images to models: each party in folders of its own."""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from fdgjax.cli.export import main as export
from fdgjax.cli.flower import main as flower
from fdgjax.cli.predict import main as predict
from fdgjax.config import Config, experiment_identity, make_config, read_config, to_plain
from fdgjax.deploy.app import ServerSettings, write_app
from fdgjax.deploy.audit import LOST, UNCHANGED, read_log
from fdgjax.deploy.audit import compare as compare_logs
from fdgjax.deploy.contents import contents_of
from fdgjax.deploy.folder import open_folder
from fdgjax.deploy.image_folder import decoded_folder, files_of
from fdgjax.deploy.kept import read_kept, state_file, write_kept
from fdgjax.deploy.message_log import MESSAGES, Audited
from fdgjax.deploy.node import Node, NodeState
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.request_handlers import Prepared, node_of, serve
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import ServerPrograms, make_server
from fdgjax.deploy.terms import OwnSamples, Terms, agree, from_words, to_words
from fdgjax.deploy.wire import Reply, Request
from fdgjax.methods import METHODS
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of
from tests.deploy.trial import Trial, compare, make_trial, node_settings, write_folder
from tests.runs import perceptron

__all__ = ["perceptron"]


class Direct:
    """A transport within one process; the clients in `away` do not answer, and the round that is `last` never ends."""

    def __init__(self, settings: Sequence[NodeSettings], last: int = 99) -> None:
        self.settings, self.last, self.away = settings, last, set[int]()
        self.nodes: list[dict[str, Prepared]] = [{} for _ in settings]

    def ask(self, request: Request, client: int) -> Reply:
        return serve(self.settings[client], request, self.nodes[client])

    def join(self, terms: str, clients: int) -> Mapping[int, int]:
        replies = [self.ask(Request("join", -1, terms, {}, {}), client) for client in range(clients)]
        return {reply.client: int(reply.facts["samples"]) for reply in replies}

    def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        replies = [self.ask(one, one.client) for one in requests if one.client not in self.away]
        if requests[0].action == "train" and int(requests[0].facts["round"]) == self.last:
            raise KeyboardInterrupt  # the server dies when all clients have trained
        return replies


@pytest.fixture(scope="module")
def trial(cache: Path, perceptron: None) -> Trial:
    config = make_config("fedavg", "rotated_digits")
    config.model.name = "perceptron"
    config.data.cache_dir, config.data.clients = str(cache), 2
    config.update({"rounds": 2, "local_epochs": 1, "batch_size": 6, "devices": 1})
    return make_trial(read_config(config), most=12)


def test_the_simulation_begins_and_trains_on_what_the_parties_have(trial: Trial) -> None:
    """A first state may count the server's labels, so it is made of no others."""
    assert trial.experiment.init.args[-1] is trial.experiment.train
    assert [len(one.labels) for one in trial.clients] == np.asarray(trial.experiment.train.train.length).tolist()


@pytest.fixture(scope="module")
def server(trial: Trial) -> ServerPrograms:
    return make_server(agree(trial.terms), trial.server)


@pytest.mark.slow
def test_a_server_that_dies_after_the_clients_trained_goes_on_from_its_checkpoint(
    trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    said, direct = list[str](), Direct(node_settings(trial, tmp_path), last=1)
    with pytest.raises(KeyboardInterrupt):
        run_rounds(server, Audited(direct, tmp_path / "server" / MESSAGES), tmp_path / "server", Policy(), said.append)
    direct.last = 99
    run_rounds(server, Audited(direct, tmp_path / "server" / MESSAGES), tmp_path / "server", Policy(), said.append)
    assert any("continuing after round 1 of 2" in line for line in said)
    found = compare(trial, tmp_path)
    assert max(found.server, found.rows) <= 1e-5 * found.largest
    records = [json.loads(line) for line in (tmp_path / "server" / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == [1, 2]
    up, down = (2 * trial.experiment.facts[f"bytes_{way}_per_round"] // 2 for way in ("up", "down"))
    assert [(record["bytes_up"], record["bytes_down"]) for record in records] == 2 * [(up, down)]
    assert len(list(tmp_path.glob("node*/states/*/model.safetensors"))) == 2
    logs = [read_log(file) for file in (tmp_path / "server" / MESSAGES, *tmp_path.glob("node*/states/messages.jsonl"))]
    found_of = compare_logs([entry for log in logs for entry in log.entries])
    assert {(one.entry.kind, one.state) for one in found_of if one.state != UNCHANGED} == {("train", LOST)}
    trained = [one for one in logs[0].entries if one.kind == "train" and one.direction == "received"]
    assert [sum(one.bytes for one in trained if one.after_round == round_) for round_ in range(2)] == [up, up]
    assert (tmp_path / "server" / "model.safetensors").exists()


@pytest.mark.slow
def test_the_models_that_a_deployment_leaves_are_exported_and_predict(
    trial: Trial, server: ServerPrograms, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    direct, folder = Direct(node_settings(trial, tmp_path)), tmp_path / "server"
    held = run_rounds(server, direct, folder, Policy(), lambda line: None)
    image = np.asarray(trial.clients[0].inputs[0])
    Image.fromarray(image[..., 0]).save(tmp_path / "one.png")
    shared = jax.tree.map(lambda leaf: leaf[0], server.agreed.method.unseen(held.state.server, held.state.clients))
    inputs = jnp.asarray(image[None], jnp.float32) / 127.5 - 1
    logits = server.agreed.client.whole.apply(shared, inputs, False, jax.random.key(0))[0].logits[0]
    (of_node,) = (tmp_path / "node1" / "states").glob("*/model.safetensors")
    for file in (folder / "model.safetensors", of_node):
        out = tmp_path / f"of {file.parent.name}"
        assert export(["export", str(file), "--out", str(out)]) == 0
        capsys.readouterr()
        assert predict(["predict", str(out), str(tmp_path / "one.png")]) == 0
        row = capsys.readouterr().out.splitlines()[1].split(",")
        found = [float(cell) for cell in row[2 : 2 + len(logits)]]
        np.testing.assert_allclose(found, jax.nn.softmax(logits), atol=1e-6)
        card, whose = (out / "README.md").read_text(), "client 1" if file == of_node else "unseen domains"
        assert f"the model of {whose}, after round 2 of 2" in card
        assert all(words not in card for words in ("not finished", "no round was evaluated", "--guarded"))
    for main, words in ((predict, ["one.png"]), (export, ["--out", str(tmp_path / "another")])):
        assert main(["it", str(folder), *words]) == 2
        assert f"expected an export of its model: fdgjax export {folder}" in capsys.readouterr().err


@pytest.mark.slow
def test_the_page_for_administrators_says_what_is_logged(trial: Trial, server: ServerPrograms, tmp_path: Path) -> None:
    direct = Direct(node_settings(trial, tmp_path))
    run_rounds(
        server, Audited(direct, tmp_path / "server" / MESSAGES), tmp_path / "server", Policy(), lambda line: None
    )
    said = contents_of(trial.terms)
    entries = read_log(tmp_path / "node0" / "states" / MESSAGES).entries
    assert [entry.kind for entry in entries[::2]] == ["join", "train", "train", "evaluate", "finish"]
    for entry in entries:
        leaves, facts = (said.down, said.kinds[entry.kind].down) if entry.down else (said.up, said.kinds[entry.kind].up)
        assert (entry.arrays, entry.bytes) == (len(leaves[entry.kind]), bytes_of(leaves[entry.kind]))
        assert set(entry.facts) == set(facts)


@pytest.mark.slow
def test_a_round_goes_on_without_a_client_and_says_so(trial: Trial, server: ServerPrograms, tmp_path: Path) -> None:
    said, direct = list[str](), Direct(node_settings(trial, tmp_path))
    direct.away = {1}
    held = run_rounds(server, direct, tmp_path / "server", Policy(deadline=1.0), said.append)
    assert list(held.accepted) == [1, -1]
    assert all("1 of 2 clients, without [1]" in line for line in said[:2])


@pytest.mark.slow
def test_clients_that_no_round_selected_are_evaluated_and_get_the_selected_rounds_model(
    trial: Trial, tmp_path: Path
) -> None:
    config = dataclasses.replace(trial.terms.config, clients_per_round=1, rounds=1)
    for selection in ("last", "validation"):
        terms = trial.terms._replace(config=dataclasses.replace(config, selection=selection))
        said, folder = list[str](), tmp_path / selection
        direct = Direct(node_settings(trial, folder))
        run_rounds(make_server(agree(terms), trial.server), direct, folder / "server", Policy(), said.append)
        assert "2 of 2 clients have written their model" in said
        assert len(list(folder.glob("node*/states/*/state.npz"))) == 1
        first, second = (load_file(file) for file in folder.glob("node*/states/*/model.safetensors"))
        chex.assert_trees_all_equal(first, second)  # FedAvg has one model


@pytest.mark.slow
def test_more_rounds_end_with_the_longer_runs_numbers(trial: Trial, server: ServerPrograms, tmp_path: Path) -> None:
    once = trial.terms._replace(config=dataclasses.replace(trial.terms.config, rounds=1))
    direct, folder = Direct(node_settings(trial, tmp_path)), tmp_path / "server"
    for programs in (make_server(agree(once), trial.server), server):
        run_rounds(programs, direct, folder, Policy(), list[str]().append)
    found = compare(trial, tmp_path)
    assert max(found.server, found.rows) <= 1e-5 * found.largest
    assert json.loads((folder / "summary.json").read_text())["continued_from"] == [1]
    assert (folder / "summary_1.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "changes"), [("fedavg", {"client_schedule": "cosine"}), ("feddg_ga", {})])
def test_more_rounds_than_a_schedule_was_made_for_are_refused(
    method: str, changes: dict[str, Any], trial: Trial, tmp_path: Path
) -> None:
    chosen = METHODS[method].hyper(name=method, **changes)
    for rounds in (1, 2):
        terms = trial.terms._replace(config=dataclasses.replace(trial.terms.config, method=chosen, rounds=rounds))
        refused = pytest.raises(
            UserError, match=f"holds 1 rounds of '{method}' .*; expected 1; make the app with another"
        )
        with refused if rounds == 2 else nullcontext():
            open_folder(tmp_path, terms)
    assert json.loads((tmp_path / "config.json").read_text())["config"]["rounds"] == 1


def test_every_party_chooses_the_units_that_a_method_needs(trial: Trial) -> None:
    fedbn = dataclasses.replace(trial.terms.config, method=METHODS["fedbn"].hyper(name="fedbn"))
    assert agree(trial.terms._replace(config=fedbn)).method.label("params/linear_1/bn/scale") == "local"
    alone = trial.terms._replace(config=fedbn, clients=1)
    with pytest.raises(UserError, match="'fedbn' got a single client"):
        agree(alone)


def test_keys_without_their_library_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert flower(["fdgjax flower", f"--keys={tmp_path / 'keys'}"]) == 2
    assert capsys.readouterr().err.endswith("cryptography, not installed; pip install 'fdgjax[flower]'\n")
    assert not (tmp_path / "keys").exists()


@pytest.mark.slow
def test_the_command_says_which_units_a_method_gets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    terms = ["--classes=a,b", "--config.data.clients=2", "--config.data.image_size=8", f"--workdir={tmp_path / 'run'}"]
    asked = [f"--app={tmp_path / 'app'}", *terms, "--config=fedbn:folder", "--config.model.name=digits_cnn"]
    assert flower(["fdgjax flower", *asked]) == 0
    assert "so that its units are model.unit=norm" in caplog.text


def test_the_terms_of_an_earlier_version_get_the_defaults_of_later_keys(trial: Trial) -> None:
    words = json.loads(to_words(trial.terms))
    del words["config"]["method"]["server_epsilon"], words["config"]["data"]["split_seed"]
    assert from_words(json.dumps(words), earlier=True) == trial.terms
    # Parties that train together have one version.
    with pytest.raises(UserError):
        from_words(json.dumps(words))


def test_a_key_that_is_added_to_the_package_changes_no_name_of_a_nodes_state(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = node_settings(trial, tmp_path)[0]
    before, config, plain = state_file(own, trial.terms), trial.terms.config, to_plain
    longer = dataclasses.replace(config, rounds=config.rounds + 1)
    assert state_file(own, trial.terms._replace(config=longer)) == before, "more rounds are the same experiment"
    others = [
        trial.terms._replace(config=dataclasses.replace(config, **change))
        for change in (
            {"seed": config.seed + 1},
            {"method": dataclasses.replace(config.method, client_learning_rate=0.3)},
            {"method": make_typed("fedprox").method},
            {"method": make_typed("moon").method},
        )
    ]
    assert len({before, *(state_file(own, other) for other in others)}) == 5

    def with_another(config: Config) -> dict[str, Any]:
        return plain(config) | {"new_key": 3}

    monkeypatch.setattr("fdgjax.config.make.to_plain", with_another)
    monkeypatch.setattr("fdgjax.deploy.kept.to_plain", with_another)
    assert state_file(own, trial.terms) == before


KEYS_OF_THEN = 93
"""How many keys a config had, those of its method not counted, when states were named after all of them."""


def make_typed(method: str) -> Config:
    """The config of a method with all its defaults."""
    return read_config(make_config(method))


def test_a_state_that_was_named_after_all_keys_is_still_found(trial: Trial, tmp_path: Path) -> None:
    own = node_settings(trial, tmp_path)[0]
    every = experiment_identity(to_plain(trial.terms.config))
    data = {key: value for key, value in every["data"].items() if key not in ("group", "split", "owner")}
    model = {key: value for key, value in every["model"].items() if key != "frozen_statistics"}
    keys = {key: value for key, value in every.items() if key != "figures_threshold"}
    keys |= {"data": data, "model": model, "rounds": 0}
    of_then = sum(len(value) if isinstance(value, dict) else 1 for key, value in keys.items() if key != "method")
    assert of_then == KEYS_OF_THEN, "a key that is new belongs to KEYS_SINCE in fdgjax/deploy/kept.py, and here"
    facts = (keys, trial.terms.class_names, trial.terms.sample_shape, trial.terms.clients, (), None, "")
    earlier = own.states / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}-client{own.client}"
    now = state_file(own, trial.terms)
    assert now.parent != earlier
    earlier.mkdir(parents=True)
    assert state_file(own, trial.terms) == earlier / now.name
    named = dataclasses.replace(trial.terms.config.data, group="^p[0-9]")
    grouped = trial.terms._replace(config=dataclasses.replace(trial.terms.config, data=named))
    assert state_file(own, grouped).parent not in (earlier, now.parent)


def test_terms_travel_as_words(trial: Trial) -> None:
    assert from_words(to_words(trial.terms)) == trial.terms


def test_the_app_is_settings_and_no_program(trial: Trial, tmp_path: Path) -> None:
    import tomllib

    write_app(tmp_path / "app", ServerSettings(trial.terms, tmp_path / "server", deadline=2.5, authentication=True))
    assert [file.name for file in (tmp_path / "app").iterdir()] == ["pyproject.toml"]
    settings = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert from_words(settings["terms"]) == trial.terms
    assert (settings["deadline"], settings["authentication"]) == (2.5, True)


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("central", {}, "gathers all samples at one place"),
        ("fedavg", {"seeds": 2}, "config.seeds got 2; expected 1"),
        ("fedproto", {"defence.clip": "median"}, "clients send no update"),
        ("fedavg", {"data.protocol": "labelled_server"}, "pseudo-labels from a model trained before"),
    ],
)
def test_what_cannot_be_deployed_is_refused(
    method: str, changes: dict[str, object], words: str, perceptron: None
) -> None:
    config = make_config(method)
    config.model.name = "perceptron"
    config.update_from_flattened_dict(changes)
    with pytest.raises(UserError, match=words):
        agree(Terms(read_config(config), ("a", "b"), (8, 8, 1), 2))


def test_images_come_back_from_their_folder_in_their_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for channels in (1, 3):
        own = OwnSamples(rng.integers(0, 256, (5, 4, 4, channels), np.uint8), np.array([1, 0, 1, 1, 0], np.int32))
        folder = tmp_path / str(channels)
        write_folder(folder, own, ("a", "b"))
        for _ in range(2):  # decoded, then kept
            found = decoded_folder(folder, ("a", "b"), (4, 4, channels), tmp_path / "cache")
            assert all(np.array_equal(a, b) for a, b in zip(found[:2], own[:2], strict=True))


def test_a_folder_that_is_no_class_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    with pytest.raises(UserError, match="expected folders named a, b"):
        files_of(tmp_path, ("a", "b"))


def test_what_a_node_keeps_is_read_back_and_damage_is_noticed(tmp_path: Path) -> None:
    kept = NodeState(2, {"[0]['a']": np.arange(3.0)}, 3, {"[0]['a']": np.ones(3)})
    file = tmp_path / "state.npz"
    assert read_kept(file) is None
    write_kept(file, kept)
    found = read_kept(file)
    assert found is not None
    assert (found.accepted, found.trained) == (2, 3)
    assert np.array_equal(found.before["[0]['a']"], kept.before["[0]['a']"])
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(UserError, match="is damaged"):
        read_kept(file)


def test_a_process_for_all_messages_mixes_neither_terms_nor_samples(trial: Trial, tmp_path: Path) -> None:
    own, nodes = node_settings(trial, tmp_path)[0], dict[str, Prepared]()
    other = trial.terms._replace(config=dataclasses.replace(trial.terms.config, seed=5))

    def node(terms: Terms) -> Node:
        return node_of(own, to_words(terms), nodes)

    first = node(trial.terms)
    assert node(trial.terms) is first
    assert node(other).agreed.terms.config.seed == 5
    assert node(trial.terms).agreed.terms.config.seed == trial.terms.config.seed
    assert len(nodes) == 1, "a node holds its samples: the last one alone is kept"
    before = node(trial.terms)
    image, *_ = sorted(own.places.samples.rglob("*.png"))
    image.unlink()
    assert samples_held(node(trial.terms)) == samples_held(before) - 1
    fewer, (image, *_) = node(trial.terms), sorted(own.places.samples.rglob("*.png"))
    image.write_bytes(image.read_bytes())
    os.utime(image, ns=(0, 0))
    assert node(trial.terms) is not fewer, "an image of the same name and size may be another"


def samples_held(node: Node) -> int:
    """The number of samples that a node trains on."""
    assert isinstance(node.train, functools.partial)
    return int(node.train.args[0].train.length[node.client])
