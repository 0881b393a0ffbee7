"""Contributions are those of separately trained coalitions, and an absent client is one that does not exist."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import chex
import numpy as np
import pytest

import fdgjax
from fdgjax.api.contributions import as_json, mean_and_error, read_contributions, train_coalitions
from fdgjax.api.results import Result
from fdgjax.api.trainer import lending
from fdgjax.cli.contributions import config_of, main, parser
from fdgjax.cli.export import main as export
from fdgjax.config import make_config
from fdgjax.data.sources.arrays import Arrays
from fdgjax.evaluation.shapley import all_coalitions, shapley_values
from fdgjax.inference.excluded_domains import excluded_accuracies
from fdgjax.report.contributions import contributions_markdown, contributions_picture
from fdgjax.run.records import Workdir, write_summary
from fdgjax.sweeps.cells import Cell
from fdgjax.sweeps.coalitions import Coalitions, coalition_name, coalitions_of, drawn_orders
from fdgjax.sweeps.status import hold
from fdgjax.utils.checksums import sha256, write_checked_json
from fdgjax.utils.errors import UserError
from tests.runs import perceptron

__all__ = ["perceptron"]

Drawn = Mapping[str, tuple[np.ndarray, np.ndarray]]
KEYS: Mapping[str, Any] = {"rounds": 2, "local_epochs": 1, "batch_size": 8, "devices": 1, "writers": ""}


def drawn(names: str) -> Drawn:
    """A domain for each letter: images of two classes, of which the brighter is the second, and a shift of its own."""
    rng, found = np.random.default_rng(0), {}
    for shift, name in enumerate("abcde"):
        labels = rng.integers(2, size=30 + 2 * shift)
        images = rng.integers(0, 60, (len(labels), 8, 8, 1)) + 20 * shift + 70 * labels[:, None, None, None]
        found[name] = (images.astype(np.uint8), labels)
    return {name: found[name] for name in names}


def trainer_of(data: Arrays, method: str = "fedavg", **keys: Any) -> fdgjax.Trainer:
    return fdgjax.experiment(method, data=data, target="e", model="perceptron", **{**KEYS, **keys})


def trained(data: Arrays, method: str = "fedavg", **keys: Any) -> Result:
    return trainer_of(data, method, **keys).train()


pytestmark = pytest.mark.usefixtures("perceptron")


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    ["feddyn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("scaffold", "ditto", "hfedf", "feddg_ga"))],
)
def test_an_absent_client_does_not_exist(method: str) -> None:
    without, absent = trained(drawn("ace"), method), trained(drawn("abce"), method, data__excluded="b")
    chex.assert_trees_all_equal(absent.state, without.state)
    assert absent.evaluated["ood_accuracy"] == without.evaluated["ood_accuracy"]


@pytest.mark.slow
def test_values_of_kept_runs_are_read_and_shown(tmp_path: Path) -> None:
    """Runs whose accuracies add up over their clients: 0.1, 0.2 and 0.3 above a guess of 1/4."""
    clients, worth = ("a", "b", "c"), (0.1, 0.2, 0.3)
    cells = {}
    for one in all_coalitions(3):
        cells[one] = Cell("+".join(clients[i] for i in sorted(one)), make_config("fedavg"))
        folder, sums = tmp_path / cells[one].name, 0.25 + sum(worth[i] for i in one)
        folder.mkdir()
        (folder / "metrics.jsonl").touch()
        own = {name: sums for i, name in enumerate(clients) if i in one}
        absent = {name: sums for i, name in enumerate(clients) if i not in one}
        facts = {"seed": 3, "per_domain_accuracy": {**own, "e": sums}, **({"excluded": list(absent)} if absent else {})}
        write_summary(Workdir(folder), facts)
        of = sha256(folder / "summary.json")
        write_checked_json(folder / "excluded.json", {"summary": of, "accuracy": {"3": absent}})
    found = read_contributions(Coalitions(clients, "e", 4, [], cells), tmp_path)
    wanted = np.broadcast_to(np.array(worth)[:, None, None], (3, 1, 4))
    np.testing.assert_allclose(found.shapley, wanted, atol=1e-12)
    np.testing.assert_allclose(found.influence, wanted, atol=1e-12)
    plain = as_json(found)
    said = contributions_markdown(plain)
    assert "exact, by all coalitions" in said
    estimated = contributions_markdown(plain | {"orders": 2})
    assert "estimated from 2 random orders" in estimated
    assert "the choice of the orders adds an error" in estimated
    assert "| client | e (unseen) | a | b | c |" in said
    assert "| b | +20.0 | +20.0 | +20.0 | +20.0 |" in said
    assert "| a + c | 65.0 | 65.0 | 65.0 | 65.0 |" in said
    assert contributions_picture(plain).startswith(b"\x89PNG")
    (tmp_path / "a/summary.json").unlink()
    with pytest.raises(UserError, match="it is not finished"):
        read_contributions(Coalitions(clients, "e", 4, [], cells), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "seeds"), [("abc", 2), ("abcd", 1)])
def test_shapley_values_are_those_of_separately_trained_coalitions(clients: str, seeds: int, tmp_path: Path) -> None:
    asked = fdgjax.experiment("fedavg", data=drawn(clients + "e"), target="e", model="perceptron", **KEYS, seeds=seeds)
    found = asked.contributions(tmp_path)
    values = {frozenset[int](): np.full((seeds, len(clients) + 1), 0.5)}
    for size in range(1, len(clients) + 1):
        for some in itertools.combinations(range(len(clients)), size):
            alone = trained(drawn("".join(clients[i] for i in some) + "e"), seeds=seeds)
            values[frozenset(some)] = np.array([accuracies(alone, clients, seed) for seed in range(seeds)])
    for one, own in values.items():
        np.testing.assert_allclose(found.accuracies[one], own, atol=1e-6)
    np.testing.assert_allclose(found.shapley, shapley_values(values, len(clients)), atol=1e-6)
    everybody = frozenset(range(len(clients)))
    wanted = [values[everybody] - values[everybody - {i}] for i in range(len(clients))]
    np.testing.assert_allclose(found.influence, wanted, atol=1e-6)
    # Every run is finished: nothing is trained again, and the orders of all clients give the same.
    again = asked.contributions(tmp_path, orders=24)
    assert again.orders > 0
    np.testing.assert_allclose(again.shapley, found.shapley, atol=1e-6)
    assert "exact, by all coalitions" in contributions_markdown(as_json(again))
    said = contributions_markdown(as_json(found))
    assert f"| {clients[0]} |" in said
    assert "e (unseen)" in said
    assert ("±" in said) == (seeds > 1)


def accuracies(alone: Result, clients: str, seed: int) -> list[float]:
    """Of present clients on their held-out images, of the others and the unseen domain on all images."""
    own = alone.seed_records[seed][-1]["per_domain_accuracy"]
    others = drawn("".join(name for name in clients if name not in own))
    return [
        own[name] if name in own else float(np.mean(alone.predict(others[name][0], seed=seed) == others[name][1]))
        for name in [*clients, "e"]
    ]


@pytest.mark.slow
def test_another_experiments_folder_is_refused_and_what_is_kept_is_of_the_summary(tmp_path: Path) -> None:
    """More rounds in the same folder are another experiment, and a continued run's absent clients are measured anew."""

    def asked(**keys: Any) -> fdgjax.Trainer:
        return fdgjax.experiment("fedavg", data=drawn("abe"), target="e", model="perceptron", **{**KEYS, **keys})

    def absent(trainer: fdgjax.Trainer) -> Any:
        with lending(trainer.given):
            return excluded_accuracies(tmp_path / "game/a")

    first = asked(rounds=1).contributions(tmp_path / "game")
    with pytest.raises(UserError, match=r"holds another experiment: config\.rounds is 1 there and 3 here"):
        asked(rounds=3).contributions(tmp_path / "game")
    longer = asked(data__excluded="b")
    assert absent(longer) == {"0": {"b": first.accuracies[frozenset({0})][0, 1]}}
    longer.train(tmp_path / "game/a")
    with lending(longer.given):
        assert export(["export", str(tmp_path / "game/a"), "--out", str(tmp_path / "model")]) == 0
    assert "; domains: `a`, `e`.\n" in (tmp_path / "model/README.md").read_text(), "b was excluded"
    alone = accuracies(trained(drawn("abe"), data__excluded="b"), "b", 0)[0]
    assert absent(longer) == {"0": {"b": pytest.approx(alone)}}


def test_a_share_that_is_done_succeeds_though_others_have_runs_left(tmp_path: Path) -> None:
    words = ["contributions", "--config=fedavg", "--config.data.excluded=r0,r15", "--out", str(tmp_path), "--shard=2/3"]
    config = config_of(parser().parse_known_args(words[1:])[0], ["data.excluded=r0,r15"])
    own = [cell.name for cell in coalitions_of(config, 0).cells.values()][1::3]
    for name in own:
        (tmp_path / name).mkdir()
        write_checked_json(tmp_path / name / "summary.json", {"seed": 0})
    assert main(words) == 0
    assert not (tmp_path / "contributions.md").exists()
    (tmp_path / own[0] / "summary.json").unlink()
    with hold(tmp_path, own[0]):
        assert main(words) == 1, "another process holds a run of this share"


def test_domains_of_one_folders_name_are_refused(tmp_path: Path) -> None:
    names = ("site A", "site_A")
    cells = {frozenset({i}): Cell(coalition_name(names, frozenset({i})), make_config("fedavg")) for i in range(2)}
    with pytest.raises(UserError, match="2 runs are called 'site_A'"):
        train_coalitions(Coalitions(names, "", 2, [], cells), tmp_path)


def test_names_too_long_for_a_folder_are_a_number_and_a_digest() -> None:
    clients = tuple(f"hospital_number_{i}" for i in range(22))
    assert coalition_name(clients, frozenset({1, 3})) == "hospital_number_1+hospital_number_3"
    names = {coalition_name(clients, frozenset(range(22)) - {i}) for i in range(22)}
    assert len(names) == 22
    assert all(re.fullmatch(r"21_of_22-[0-9a-f]{12}", name) for name in names)


def test_a_standard_error_is_over_seeds() -> None:
    assert mean_and_error(np.array([0.5])) == {"mean": 0.5, "error": None}
    assert mean_and_error(np.array([0.4, 0.6]))["error"] == pytest.approx(0.1)


def test_orders_are_reproducible_permutations() -> None:
    assert drawn_orders(6, 0) == []
    assert drawn_orders(7, 0) == drawn_orders(7, 0)
    assert {tuple(sorted(order)) for order in drawn_orders(7, 0)} == {tuple(range(7))}
    assert sorted(drawn_orders(3, 6)) == sorted(map(list, itertools.permutations(range(3))))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config=fedsimclr"], "whose clients have no labels"),
        (["--config=fedavg", "--config.data.clients=10"], "expected a client for each domain"),
        (["--config=fedavg", "--rounds", "3"], "expected --config.rounds="),
        (["--config=fedavg", "--orders", "-2"], "contributions got orders=-2; expected a number from 1, or 0"),
    ],
)
def test_mistakes_are_one_line(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contributions", *words, "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_what_the_picture_needs_is_asked_for_before_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["contributions", "--config=fedavg", "--out", str(tmp_path / "out")]) == 2
    assert "contributions.png needs matplotlib, not installed; pip install 'fdgjax[report]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def listed(words: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """`drawn` with splits: each domain's words in turn."""
    return {
        name: {"inputs": x, "labels": y, "splits": np.resize(words[name], len(y)).tolist()}
        for name, (x, y) in drawn("".join(words)).items()
    }


@pytest.mark.slow
def test_an_absent_client_is_tested_on_what_is_for_tests(tmp_path: Path) -> None:
    data = listed({name: ["train", "train", "val", "test"] for name in "abe"})
    own, tested = data["b"], np.array(data["b"]["splits"]) == "test"
    trainer = trainer_of(data, data__excluded="b", rounds=1)
    right = trainer.train(tmp_path / "run").predict(own["inputs"]) == own["labels"]
    with lending(trainer.given):
        assert excluded_accuracies(tmp_path / "run") == {"0": {"b": right[tested].mean()}}
    assert right[tested].mean() != right.mean(), "the test could not fail"


def test_clients_of_which_some_alone_have_tests_are_refused_before_they_train(tmp_path: Path) -> None:
    words = {"a": ["train", "val", "test"], "b": ["train", "val"], "e": ["train", "test"]}
    with pytest.raises(UserError, match="have no sample of 'b' for tests, and have some of others; expected some of"):
        trainer_of(listed(words)).contributions(tmp_path / "game")
    assert not (tmp_path / "game").exists()


def test_lists_of_images_of_which_some_alone_have_tests_are_refused_before_any_is_decoded(tmp_path: Path) -> None:
    """The files are no images, so that decoding one would be an error of its own."""
    data, lists = tmp_path / "data", tmp_path / "lists"
    names = [f"{domain}/{kind}/{i}.png" for domain in "abe" for kind in ("cat", "dog") for i in range(3)]
    for name in names:
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).touch()
    lists.mkdir()
    (lists / "train.txt").write_text("\n".join(name for name in names if name.endswith(("0.png", "1.png"))))
    config = make_config("fedavg", "folder")
    config.data.dir, config.data.target, config.data.split = str(data), "e", str(lists)
    (lists / "test.txt").write_text("a/cat/2.png\n")
    with pytest.raises(UserError, match="have no sample of 'b' for tests, and have some of others; expected some of"):
        coalitions_of(config)
    (lists / "test.txt").write_text("a/cat/2.png\nb/cat/2.png\n")
    assert len(coalitions_of(config).cells) == 3
