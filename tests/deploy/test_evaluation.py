"""Figures of an evaluation at the nodes are the simulation's, and nodes send counts and figures alone."""

import dataclasses
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fdgjax.cli.flower import main as flower
from fdgjax.cli.flower import unseen_in
from fdgjax.cli.report import main as report
from fdgjax.config import make_config, read_config, split_seed_of
from fdgjax.data.protocol_parts import SplitSpec
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.deploy import evaluated_rounds
from fdgjax.deploy.audit import read_log
from fdgjax.deploy.contents import LEFT_OUT, contents_of
from fdgjax.deploy.evaluated_rounds import COUNTED, OF_UNSEEN
from fdgjax.deploy.finished_model import read_model
from fdgjax.deploy.folder import images_of
from fdgjax.deploy.kept import MODEL
from fdgjax.deploy.message_log import MESSAGES
from fdgjax.deploy.own_samples import OwnPlaces, positions
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import make_server
from fdgjax.deploy.terms import OwnSamples, Terms, agree, from_words
from fdgjax.deploy.wire import Reply, Request
from fdgjax.run.loop import images_per_round
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of
from tests.deploy.test_request_handlers import Direct
from tests.deploy.trial import Trial, make_trial, node_settings, simulated_figures
from tests.marks import mostly_slow
from tests.runs import perceptron

__all__ = ["perceptron"]


def trial(cache: Path, method: str, **changes: Any) -> Trial:
    config = make_config(method, "rotated_digits")
    config.model.name = "perceptron"
    config.data.cache_dir, config.data.clients = str(cache), 2
    config.update({"rounds": 2, "local_epochs": 1, "batch_size": 6, "devices": 1, "eval_every": 1})
    config.update_from_flattened_dict(changes)
    return make_trial(read_config(config), most=12, unseen=True)


def deployed(those: Trial, folder: Path, smallest: int = 1, said: list[str] | None = None) -> list[dict[str, Any]]:
    """The records of the server after all rounds."""
    direct = Direct(node_settings(those, folder, smallest))
    say = ([] if said is None else said).append
    run_rounds(make_server(agree(those.terms), those.server), direct, folder / "server", Policy(), say)
    return [json.loads(line) for line in (folder / "server" / "metrics.jsonl").read_text().splitlines()]


def same(ours: Any, theirs: Any, rounding: float = 1e-6) -> None:
    if isinstance(theirs, dict):
        # A domain's name is its party's in a deployment.
        for own, other in zip(ours.values(), theirs.values(), strict=True):
            same(own, other, rounding)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=rounding)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(["fedavg", "ditto"], ("fedavg",)))
def test_figures_of_all_rounds_are_the_simulations(name: str, cache: Path, perceptron: None, tmp_path: Path) -> None:
    those = trial(cache, name)
    for found, expected in zip(deployed(those, tmp_path), simulated_figures(those), strict=True):
        assert expected.keys() <= found.keys()
        assert {"id_accuracy", "ood_accuracy", "id_loss", "calibration"} <= expected.keys()
        for key, figure in expected.items():
            same(found[key], figure)
        assert COUNTED not in found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("fedavg", {"model.name": "digits_cnn", "adaptation.kind": "t3a"}),
        ("hfedf", {"client_model": "trained"}),
        ("uap", {"data.protocol": "labelled_server", "data.clients": 2}),
        ("fedsimclr", {"model.name": "digits_cnn"}),
        ("fedadg", {}),
        ("atp", {"model.name": "digits_cnn"}),
    ],
)
def test_figures_of_methods_of_other_kinds_are_the_simulations(
    name: str, changes: dict[str, Any], cache: Path, perceptron: None, tmp_path: Path
) -> None:
    those = trial(cache, name, **changes)
    for found, expected in zip(deployed(those, tmp_path), simulated_figures(those), strict=True):
        for key, figure in expected.items():
            # A probe is trained on rounded features: of some hundred samples a few may fall on the other side.
            same(found[key], figure, 5e-3 if key.startswith("probe") else 1e-6)
    check_page(those.terms, tmp_path)


def check_page(terms: Terms, folder: Path) -> None:
    """What administrators are told of the unseen party's evaluations is what its node logs."""
    said = contents_of(terms)
    log = read_log(folder / "node2" / "states" / MESSAGES).entries
    evaluations = [entry for entry in log if entry.kind == "evaluate"]
    assert evaluations
    for entry in evaluations:
        leaves = (said.down if entry.down else said.up)[LEFT_OUT]
        facts = said.kinds[LEFT_OUT].down if entry.down else said.kinds[LEFT_OUT].up
        assert (entry.arrays, entry.bytes, set(entry.facts)) == (len(leaves), bytes_of(leaves), set(facts))


@pytest.mark.slow
def test_a_method_whose_models_stay_at_the_nodes_has_no_figures_of_the_unseen_domain(
    cache: Path, tmp_path: Path
) -> None:
    those = trial(cache, "fedbn", **{"model.name": "digits_cnn"})
    for found, expected in zip(deployed(those, tmp_path), simulated_figures(those), strict=True):
        assert {"ood_accuracy", OF_UNSEEN}.isdisjoint(found)
        for key in ("id_accuracy", "id_all_accuracy", "client_accuracy", "id_loss", "id_ece"):
            # Programs round BatchNorm by the processor; one sample more or less would be a hundred times that.
            same(found[key], expected[key], 1e-5)


@pytest.mark.slow
def test_nodes_that_protect_their_samples_send_no_counts_and_the_unseen_one_does(
    cache: Path, perceptron: None, tmp_path: Path
) -> None:
    pytest.importorskip("dp_accounting")
    privacy = {"unit": "sample", "noise": 1.0, "delta": 1e-3}
    changes = {f"privacy.{key}": value for key, value in privacy.items()}
    those = trial(cache, "fedavg", **changes, **{"method.weighting": "uniform"})
    for found in deployed(those, tmp_path):
        assert "ood_accuracy" in found
        assert {"id_accuracy", "client_accuracy", OF_UNSEEN}.isdisjoint(found)
    check_page(those.terms, tmp_path)
    summary = json.loads((tmp_path / "server" / "summary.json").read_text())
    assert summary["privacy_epsilon"] == found["privacy_epsilon"] > 0


@pytest.mark.slow
def test_the_summary_is_a_runs_and_a_report_is_made_of_it(cache: Path, perceptron: None, tmp_path: Path) -> None:
    those = trial(cache, "fedavg", selection="validation")
    records = deployed(those, tmp_path)
    summary = json.loads((tmp_path / "server" / "summary.json").read_text())
    chosen = summary["selection"]["validation"]["round"]
    assert summary["ood_accuracy"] == records[chosen - 1]["ood_accuracy"]
    facts = those.experiment.facts
    for key in ("method", "clients", "parameters", "bytes_up_per_round", "bytes_down_per_round", "flops_per_image"):
        assert summary[key] == facts[key]
    assert summary["target"] == "client2"
    assert summary["images_by_domain"] == {
        f"client{party}": len(own.labels) for party, own in enumerate([*those.held_out, those.unseen])
    }
    assert set(records[0][OF_UNSEEN]) == {"0", "1"}
    assert report(["fdgjax report", str(tmp_path / "server"), "--out", str(tmp_path / "report")]) == 0
    shared = load_file(tmp_path / "server" / "model.safetensors")
    for node in (0, 1):
        (own,) = (tmp_path / f"node{node}").glob("states/*/model.safetensors")
        assert {path: leaf.tobytes() for path, leaf in load_file(own).items()} == {
            path: leaf[0].tobytes() for path, leaf in shared.items()
        }
        kept = [file.name for file in own.parent.glob("evaluated-*")]
        assert f"evaluated-{chosen}.safetensors" in kept
        assert len(kept) <= 2


@pytest.mark.slow
def test_a_client_that_missed_the_selected_rounds_evaluation_says_that_it_has_the_last_model(
    cache: Path, perceptron: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Misses(Direct):
        def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
            self.away = {1} if requests[0].action == "evaluate" else set()
            return super().exchange(requests, deadline)

    monkeypatch.setattr("fdgjax.deploy.delivery.reported", lambda records, rule: records[0])
    those, said = trial(cache, "fedavg", selection="validation"), list[str]()
    server = make_server(agree(those.terms), those.server)
    run_rounds(server, Misses(node_settings(those, tmp_path)), tmp_path / "server", Policy(1.0), said.append)
    line = "the last round's model, as the selected one, of round 1, was not evaluated here"
    assert f"2 of 2 clients have written their model; client 1: {line}" in said
    assert [record.getMessage() for record in caplog.records if line in record.getMessage()] == [
        f"{next(tmp_path.glob('node1/states/*/model.safetensors'))} holds {line}"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("best", [2, 3])
def test_the_delivered_models_are_those_of_the_round_that_the_summary_reports(
    best: int, cache: Path, perceptron: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that is the last one, which only this run evaluates and no longer one would."""
    made = evaluated_rounds.figures_of

    def figures(*asked: Any) -> dict[str, Any]:
        return made(*asked) | {"id_accuracy": 1.0 if next(numbers) == best else 0.0}

    numbers = iter((2, 3))
    monkeypatch.setattr(evaluated_rounds, "figures_of", figures)
    deployed(trial(cache, "fedavg", selection="validation", rounds=3, eval_every=2), tmp_path)
    summary = json.loads((tmp_path / "server" / "summary.json").read_text())
    assert summary["selection"]["validation"]["round"] == best
    files = [tmp_path / "server" / MODEL, *tmp_path.glob(f"node*/states/*/{MODEL}")]
    assert [read_model(file)[1]["round"] for file in files] == [str(best)] * 3
    shared, *own = (read_model(file)[0] for file in files)
    for found in own:
        assert {path: leaf.tobytes() for path, leaf in found.items()} == {
            path: leaf[0].tobytes() for path, leaf in shared.items()
        }


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedavg", {"clients_per_round": 1, "drop_last": True, "batch_size": 5}),
        ("ssfl", {"data.protocol": "labelled_server", "local_epochs": 2}),
    ],
)
def test_images_per_second_are_those_that_a_round_trains_on(
    method: str, changes: dict[str, Any], cache: Path, perceptron: None
) -> None:
    those = trial(cache, method, **changes)
    lengths = np.array([len(own.labels) for own in those.clients], np.int32)
    server = make_server(agree(those.terms), those.server)
    assert [images_of(server, lengths)] == images_per_round(those.experiment)


@pytest.mark.slow
def test_a_node_sends_nothing_of_fewer_samples_than_its_smallest_number(
    cache: Path, perceptron: None, tmp_path: Path
) -> None:
    those, said = trial(cache, "fedavg"), list[str]()
    most = max(len(own.labels) for own in those.held_out)
    (first, last) = deployed(those, tmp_path, most + 1, said)
    assert "id_accuracy" not in first
    assert OF_UNSEEN not in first
    assert "ood_accuracy" in last
    words = "it evaluates on fewer samples, or groups of samples, than `smallest` in its node-config (by default 10)"
    assert f"client 0 sends no figures: {words}: source,target" in said


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["last", "validation"])
def test_a_run_without_any_figure_ends_with_its_model_and_a_report(
    selection: str, cache: Path, perceptron: None, tmp_path: Path
) -> None:
    records = deployed(trial(cache, "fedavg", selection=selection, rounds=1), tmp_path, smallest=10_000)
    assert {"id_accuracy", "ood_accuracy"}.isdisjoint(*records)
    assert (tmp_path / "server" / "model.safetensors").exists()
    assert report(["fdgjax report", str(tmp_path / "server"), "--out", str(tmp_path / "report")]) == 0


@pytest.mark.parametrize(("protocol", "split_seed"), [("unseen_client", -1), ("every_domain", -1), ("every_domain", 5)])
def test_a_party_splits_its_samples_as_the_simulation_splits_its_domain(
    protocol: str, split_seed: int, cache: Path
) -> None:
    config = make_config("fedavg", "rotated_digits")
    config.data.cache_dir = str(cache)
    if protocol == "every_domain":
        config.data.target = ""
    config.data.protocol = protocol
    config.data.split_seed = split_seed
    read = read_config(config)
    data = make_trial(dataclasses.replace(read, devices=1)).experiment.data
    last = len(data.domain_names) - 1
    unseen = last if protocol == "unseen_client" else None
    how = SplitSpec(target=data.domain_names[last] if unseen else "", seed=split_seed_of(read, read.seed))
    parts = PROTOCOLS[protocol].split(data, how)
    clients = last if unseen else last + 1
    terms = Terms(read, data.class_names, data.inputs.shape[1:], clients, unseen=unseen)
    for party in range(terms.parties):
        rows = np.flatnonzero(data.domains == party)
        own = OwnSamples(data.inputs[rows], data.labels[rows])
        found = [rows[each] for each in positions(own, OwnPlaces(Path()), terms, party)]
        expected: list[Any] = (
            [[], [], [], parts.target]
            if party == unseen
            else [parts.train[party], parts.validation[party], parts.test[party], []]
        )
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("protocol", ["leave_one_out", "unseen_client"])
def test_the_command_leaves_a_party_out(protocol: str, perceptron: None, tmp_path: Path) -> None:
    count = "--config.data.clients=3" if protocol == "leave_one_out" else "--clients=3"
    experiment = ["--config=fedavg:folder", "--config.model.name=perceptron", f"--config.data.protocol={protocol}"]
    asked = [*experiment, f"--app={tmp_path / 'app'}", "--classes=a,b", "--config.data.image_size=8", count]
    assert flower(["fdgjax flower", *asked, "--unseen=client1", f"--workdir={tmp_path / 'run'}"]) == 0
    settings = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    terms = from_words(settings["terms"])
    assert (terms.clients, terms.unseen, terms.trained) == (2, 1, (0, 2))
    assert terms.config.data.clients == (2 if protocol == "leave_one_out" else 0)


def test_apps_that_differ_in_the_unseen_party_have_folders_of_their_own(
    perceptron: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["--config=fedavg:folder", "--config.model.name=perceptron", "--config.data.clients=3", "--classes=a,b"]
    found = set()
    for number, unseen in enumerate(("", "client1", "client2")):
        app = [f"--app=app{number}", "--config.data.image_size=8", *([f"--unseen={unseen}"] if unseen else [])]
        assert flower(["fdgjax flower", *asked, *app]) == 0
        settings = tomllib.loads(Path(f"app{number}/pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        found.add(settings["workdir"])
    assert len(found) == 3


@pytest.mark.parametrize("words", ["client3", "x", "-1", "client"])
def test_a_party_that_is_not_there_cannot_be_left_out(words: str) -> None:
    with pytest.raises(UserError, match="expected one of 3 clients, client0 to client2"):
        unseen_in(words, 3)


def test_parties_keep_their_numbers_whichever_is_unseen() -> None:
    terms = Terms(read_config(make_config("fedavg")), ("a", "b"), (8, 8, 1), 3, unseen=1)
    assert (terms.parties, terms.trained) == (4, (0, 2, 3))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"figures": "auroc", "selection": "validation_by_size:auroc"}, "computed from samples of all parties at once"),
        ({"figures": "f1", "selection": "validation:f1"}, "computed from samples of all parties at once"),
        ({"data.shots": 1}, "no party gives samples to another"),
        ({"data.name": "folder", "data.split": "lists"}, "data.split got 'lists', but each party .*by held_out in its"),
        ({"data.name": "folder", "data.owner": "^s"}, "data.owner got '\\^s', but each party is a client"),
    ],
)
def test_what_nodes_would_have_to_show_is_refused(changes: dict[str, Any], words: str, perceptron: None) -> None:
    config = make_config("fedavg")
    config.model.name = "perceptron"
    config.update_from_flattened_dict(changes)
    with pytest.raises(UserError, match=words):
        agree(Terms(read_config(config), ("a", "b"), (8, 8, 1), 2))
