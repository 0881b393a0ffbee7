"""A search tries each set of values once, goes on where it was stopped, and sees held-out data of the sources alone."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.cli.search import keep_identity, main, parser, read_search, space_of
from fdgjax.config import read_config
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import load_data
from fdgjax.methods import METHODS
from fdgjax.methods.parts.optimizers import optimizer
from fdgjax.sweeps.space import Range, drawn_at_random, with_idle
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from tests.runs import ROOT, perceptron

pytest.importorskip("optuna")

from fdgjax.sweeps.trials import distinct_trials, open_study
from tests.sweeps.searches import ROUNDS, accuracy, finish, pretending, search_of, told_of

__all__ = ["perceptron", "pretending"]
Runs = Callable[..., dict[str, Any]]


@pytest.mark.usefixtures("pretending")
def test_no_two_trials_have_the_same_values_and_a_small_space_is_searched_whole(tmp_path: Path) -> None:
    search = search_of(tmp_path, "--trials", "50", "--no_pruning")
    assert search.total == 9
    said = finish(search)
    trials = distinct_trials(open_study(search))
    assert len({str(one.params) for one in trials}) == len(trials) == 9
    assert trials[0].params == {"mu": 0.01, "server_learning_rate": 1.0}, "the config's own values are the first trial"
    states = {str(one.params["mu"]): one.state.name for one in trials}
    assert states == {"0.01": "COMPLETE", "0.001": "COMPLETE", "0.1": "FAIL"}
    table = (tmp_path / "search.md").read_text()
    assert "failed: diverged" in table
    assert table.splitlines()[2].startswith("| trial_0000 (the config's own) | done | 52.00 |")
    assert "    fdgjax train --config=fedprox --config.rounds=5\n" in table
    assert "These are the config's own values." in table
    assert any("round 1/5  validation 12.00 %" in line for line in said)
    for text in (table, (tmp_path / "search.csv").read_text(), *said):
        assert "ood" not in text
        assert "90" not in text.replace(str(tmp_path), ""), "the target's accuracy"


@pytest.mark.slow
@pytest.mark.usefixtures("pretending")
def test_a_figure_of_which_smaller_values_are_better_is_minimised(tmp_path: Path) -> None:
    """And computed without being told; the trials are those of the accuracy, in the same order."""
    more = ("--trials", "50", "--no_pruning")
    search, other = search_of(tmp_path / "loss", "--figure", "id_log_loss", *more), search_of(tmp_path / "plain", *more)
    said = finish(search)
    finish(other)
    best, usual = open_study(search).best_trial, open_study(other).best_trial
    assert best.params == usual.params
    assert usual.value is not None
    assert best.value == pytest.approx(2 - usual.value)
    names = [
        [line.split(" |")[0] for line in (tmp_path / name / "search.md").read_text().splitlines() if "| done" in line]
        for name in ("loss", "plain")
    ]
    assert names[0] == names[1]
    assert "--config.figures=log_loss" in (tmp_path / "loss/search.md").read_text()
    assert any("round 1/5  validation log loss 1.88" in line for line in said)


def test_no_search_looks_at_the_unseen_domain(tmp_path: Path) -> None:
    for figure in ("ood_auroc", "worst_domain_auroc", "id_loss", "auroc"):
        with pytest.raises(UserError, match=f"--figure got '{figure}'; expected one of the clients' held-out data"):
            search_of(tmp_path, "--figure", figure)
    for more in ((), ("--figure", "id_auroc")):
        with pytest.raises(UserError, match="unknown task 'foo'; expected one of: classification, regression"):
            search_of(tmp_path, *more, "--set", "task=foo")
    for figure in ("id_rmse", "id_all_r2"):
        with pytest.raises(UserError, match=f"got '{figure}', which a classification does not have"):
            search_of(tmp_path, "--figure", figure)
    with pytest.raises(UserError, match=r"got 'id_auroc', which a regression does not have; .* id_rmse or"):
        search_of(tmp_path, "--figure", "id_auroc", "--set", "task=regression")
    assert search_of(tmp_path, "--figure", "id_rmse", "--set", "task=regression").figure == "id_rmse"
    assert search_of(tmp_path, "--figure", "id_all_auroc").config.figures == "auroc"


def test_a_search_goes_on_although_keys_were_added_since(tmp_path: Path) -> None:
    search = search_of(tmp_path)
    keep_identity(search)
    held = read_checked_json(tmp_path / "search.json")
    held["config"] = {key: value for key, value in held["config"].items() if not key.startswith("figures")}
    write_checked_json(tmp_path / "search.json", held)
    keep_identity(search)
    with pytest.raises(UserError, match=r"holds another search: config\.figures is  there"):
        keep_identity(search_of(tmp_path, "--figure", "id_auroc"))


@pytest.mark.slow
@pytest.mark.usefixtures("pretending")
def test_a_search_that_is_stopped_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    finish(search_of(tmp_path / "whole", "--trials", "8"))
    finish(search_of(tmp_path / "cut", "--trials", "8"), 0, 3, 1, 8, 5)
    assert told_of(tmp_path / "cut") == told_of(tmp_path / "whole")
    assert (tmp_path / "cut/search.md").read_text() == (tmp_path / "whole/search.md").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("pretending")
def test_a_trial_that_falls_behind_is_given_up_and_says_so(tmp_path: Path) -> None:
    lines = finish(search_of(tmp_path / "some"))
    given_up = [one for one in told_of(tmp_path / "some") if one[1] == "PRUNED"]
    assert given_up
    assert all(max(reported) < ROUNDS for *_, reported in given_up)
    assert any("given up after round" in line for line in lines)
    finish(search_of(tmp_path / "none", "--no_pruning"))
    assert "PRUNED" not in [one[1] for one in told_of(tmp_path / "none")]


def test_a_line_that_a_power_cut_left_unfinished_is_removed(tmp_path: Path) -> None:
    search = search_of(tmp_path)
    study = open_study(search)
    study.tell(study.ask(), 0.5)
    journal = tmp_path / "search.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code": 4, "wor')
    assert [one.value for one in open_study(search).get_trials()] == [0.5]
    assert journal.read_bytes().startswith(whole)


@pytest.mark.usefixtures("pretending")
def test_the_best_stands_beside_the_configs_own_values_with_all_that_its_command_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FDGJAX_WITH", '["my own.py"]')
    words = ["fedprox", "--out", str(tmp_path), "--tune", "mu=0.2,0.3", "--set", "rounds=2", "--data_dir", "DATA"]
    search = read_search(parser().parse_args([*words, "--trials", "9"]))
    assert search.total == 3, "the config's own value is run, though it is not among those of --tune"
    finish(search)
    table = (tmp_path / "search.md").read_text()
    command = "fdgjax --with 'my own.py' train --config=fedprox --config.rounds=2 --config.data.dir=DATA"
    assert f"    {command} --config.method.mu=0.3\n" in table
    assert "own values, trial_0000: 22.00 %, the best's 51.00 % (+29.00)." in table
    assert [line.split(",")[1:] for line in (tmp_path / "search.csv").read_text().splitlines()[1:]] == [
        ["done", "51.00", "0.3"],
        ["done", "41.00", "0.2"],
        ["done", "22.00", "0.01"],
    ]


@pytest.mark.usefixtures("pretending")
def test_a_range_is_searched_within_its_ends_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    def searched(out: str, *looks: int) -> list[tuple[Any, ...]]:
        words = ["fedprox", "--out", str(tmp_path / out), "--set", f"rounds={ROUNDS}", "--trials", "6"]
        search = read_search(parser().parse_args([*words, "--tune", "mu=log:0.2..1", "client_clip=1..3"]))
        finish(search, *looks)
        return [(one.params, one.value) for one in distinct_trials(open_study(search))]

    whole = searched("whole")
    assert whole == searched("cut", 0, 4, 9)
    assert whole[0] == ({}, 0.52), "the config's own values lie outside"
    assert len(whole) == 6
    assert all(0.2 <= params["mu"] <= 1 and 1 <= params["client_clip"] <= 3 for params, _ in whole[1:])


@pytest.mark.usefixtures("pretending")
def test_a_hyperparameter_is_drawn_only_where_it_has_an_effect(tmp_path: Path) -> None:
    words = ["fedprox", "--out", str(tmp_path), "--set", "rounds=2", "method.client_optimizer=sgd"]
    words += ["method.client_momentum=0.5", "--tune", "client_momentum=0.5,0.9", "client_optimizer", "--no_pruning"]
    search = read_search(parser().parse_args(words))
    assert search.total == 3
    assert list(search.space) == ["client_optimizer", "client_momentum"], "what others depend on comes first"
    finish(search)
    drawn = [one.params for one in distinct_trials(open_study(search))]
    assert drawn[0] == {"client_optimizer": "sgd", "client_momentum": 0.5}
    assert {"client_optimizer": "adam"} in drawn
    assert with_idle(search, {"client_optimizer": "adam"}) == {"client_optimizer": "adam", "client_momentum": 0.0}
    assert with_idle(search, drawn[0]) == drawn[0]


LABELLED = [
    name for name, entry in METHODS.items() if not (entry.unlabelled or PROTOCOLS[entry.protocol].labelled_server)
]


@pytest.mark.parametrize("name", LABELLED)
def test_all_that_a_search_draws_is_accepted_by_the_optimisers(name: str, tmp_path: Path) -> None:
    search = read_search(parser().parse_args([name, "--out", str(tmp_path)]))
    for seed in range(10):
        config = search.config.copy_and_resolve_references()
        config.method.update(with_idle(search, drawn_at_random(search, random.Random(seed))))
        h = read_config(config).method
        for side in ("client", "server"):
            optimizer(getattr(h, f"{side}_optimizer"), learning_rate=0.1, momentum=getattr(h, f"{side}_momentum"))


@pytest.mark.parametrize("whole", [False, True])
def test_numbers_are_drawn_uniformly_in_their_logarithm_if_asked(whole: bool, tmp_path: Path) -> None:
    key, (low, high) = "client_learning_rate", (1, 10_000) if whole else (1e-4, 1.0)
    search = read_search(parser().parse_args(["fedavg", "--out", str(tmp_path)]))
    search = search._replace(space={key: Range(low, high, log=True)})
    found = [drawn_at_random(search, random.Random(seed))[key] for seed in range(400)]
    assert all(low <= one <= high and isinstance(one, type(low)) for one in found)
    assert 0.4 < np.mean(np.asarray(found) < 100 * low) < 0.6


def test_clients_without_labels_have_nothing_to_compare_trials_by(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="labelled_server, whose clients have no labels to compare trials by"):
        read_search(parser().parse_args(["uap", "--out", str(tmp_path)]))


def test_a_method_declares_what_is_searched(tmp_path: Path) -> None:
    config = search_of(tmp_path).config
    everything = space_of(config, [])
    assert everything["mu"] == (0.1, 0.01, 0.001)
    assert "client_momentum" not in everything, "Adam takes none"
    assert "server_momentum" in everything, "SGD takes one"
    assert "client_optimizer" not in everything, "words are switches: only where they are asked for"
    assert space_of(config, ["client_optimizer"]) == {"client_optimizer": ("adam", "sgd")}
    config.method.mu = 0.5
    assert space_of(config, ["mu"]) == {"mu": (0.1, 0.01, 0.001, 0.5)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fedsimclr"], "expected a method whose clients hold out labelled data"),
        (["fedprox", "--set", "selection=oracle"], "looks at the unseen domain"),
        (["fedprox", "--tune", "mew"], "unknown hyperparameter of --tune 'mew'"),
        (["hfedf", "--tune", "depth"], "declares no other value than 4"),
        (["fedprox", "--tune", "mu=0.5"], "has no other value than 0.5"),
        (["fedprox", "--tune", "mu=log:0..1"], "expected LOW..HIGH with LOW < HIGH, and 0 < LOW after log:"),
        (["fedprox", "--tune", "mu=0.1,x"], "config.method.mu got 'x'; expected a number"),
        (["fedprox", "--tune", "mu=-1..1"], "config.method.mu got -1.0; expected a number from 0"),
        (["fedprox", "--tune", "client_momentum"], "has no effect with the config's other values"),
        (["fedprox", "--set", "rounds=2,3"], "--set got several values, 'rounds=2,3'; expected one"),
        (["fedproxy"], "unknown method 'fedproxy'"),
        (["--config=fedproxy"], "unknown method 'fedproxy'"),
        (["fedavg", "--config=fedprox"], "search got fedavg and --config=fedprox; expected one"),
        ([], "search got no method; expected one, such as --config=fedprox"),
        (["fedprox", "rounds=3"], "got 'rounds=3', which is no flag; expected --config.rounds=3"),
        (["fedprox", "--config.rounds=x"], "config.rounds got 'x'; expected a whole number"),
        (["fedprox", "--shard", "0/2"], "--shard got '0/2'; expected I/N"),
    ],
)
def test_mistakes_are_one_line(
    words: Sequence[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", *words, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("pretending")
def test_another_search_in_the_same_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["search", "fedprox", "--out", str(tmp_path), "--tune", "mu", "--set", "rounds=2", "--trials"]
    assert main([*command, "1"]) == 0
    assert main([*command, "2"]) == 0, "more trials go on"
    assert main([*command, "2", "--seed", "1"]) == 2
    assert "holds another search: seed is 0 there and 1 here" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("pretending")
def test_the_targets_accuracy_changes_no_proposal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(search_of(tmp_path / "ours"))
    monkeypatch.setattr("tests.sweeps.searches.of_target", lambda config: 1 - accuracy(config, 1))
    finish(search_of(tmp_path / "theirs"))
    assert told_of(tmp_path / "ours") == told_of(tmp_path / "theirs")


@pytest.mark.slow
@pytest.mark.usefixtures("perceptron")
def test_the_targets_labels_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_other_labels(*args: Any, **options: Any) -> Domains:
        data = load_data(*args, **options)
        of_target = data.domains == data.domain_names.index("r45")
        return data._replace(labels=np.where(of_target, (data.labels + 1) % 10, data.labels).astype(np.int32))

    def searched(name: str) -> tuple[list[tuple[Any, ...]], str, list[float]]:
        keys = ["model.name=perceptron", "local_epochs=1", "eval_every=1", "data.target=r45", "devices=1", "rounds=2"]
        keys.append(f"data.cache_dir={tmp_path / 'cache'}")
        search = search_of(tmp_path / name, "--trials", "1", "--set", *keys)
        finish(search)
        seen = [json.loads(file.read_text())["ood_accuracy"] for file in (tmp_path / name).glob("*/summary.json")]
        return told_of(tmp_path / name), (tmp_path / name / "search.csv").read_text(), seen

    ours = searched("ours")
    monkeypatch.setattr("fdgjax.experiments.chosen_data.load_data", with_other_labels)
    theirs = searched("theirs")
    assert ours[:2] == theirs[:2]
    assert [state for _, state, *_ in ours[0]] == ["COMPLETE"]
    assert ours[2] != theirs[2], "the labels did change"


@pytest.mark.slow
def test_a_search_that_is_killed_ends_with_the_undisturbed_trials(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from fdgjax.models import MODELS, Backbone\nfrom tests.runs import Perceptron\n"
        "MODELS.setdefault('perceptron', Backbone(Perceptron, 'of the tests'))\n"
    )

    def command(out: str) -> list[str]:
        keys = ["rounds=8", "local_epochs=1", "eval_every=2", "checkpoint_every=3", "devices=1"]
        keys += ["model.name=perceptron", f"data.cache_dir={tmp_path / 'cache'}"]
        words = ["search", "fedprox", "--out", str(tmp_path / out), "--trials", "3", "--tune", "mu", "--set", *keys]
        return [sys.executable, "-m", "fdgjax", "--with", str(own), *words]

    def rounds() -> int:
        return sum(file.read_text().count("\n") for file in (tmp_path / "cut").glob("*/metrics.jsonl"))

    for many in (5, 11):
        with subprocess.Popen(command("cut"), cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            while rounds() < many:
                assert process.poll() is None, "the search ended before the moment came"
                time.sleep(0.002)
            process.kill()
    for out in ("cut", "whole"):
        subprocess.run(command(out), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert told_of(tmp_path / "cut") == told_of(tmp_path / "whole")
    records = sorted((tmp_path / "whole").glob("trial_*/metrics.jsonl"))
    assert len(records) == 3
    for file in [tmp_path / "whole" / "search.csv", *records]:
        assert (tmp_path / "cut" / file.relative_to(tmp_path / "whole")).read_bytes() == file.read_bytes()
