"""A choice is the reading of a sweep over methods and left-out domains, from which the target stays out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fdgjax
from fdgjax.cli.choose import main, parser, read_asked, with_keys
from fdgjax.config import make_config
from fdgjax.evaluation.best_set import best_set
from fdgjax.inference.left_out import read_left_out
from fdgjax.report.choices import choice_tables
from fdgjax.sweeps.choice import AS_FAST, cheapest, no_choice, not_behind, read_choice
from fdgjax.sweeps.choice_record import Judged
from fdgjax.sweeps.choosing import (
    cells_of,
    choosing_of,
    drawn_candidates,
    trained_config,
)
from fdgjax.sweeps.status import hold, note_failure
from fdgjax.utils.checksums import write_checked_json
from fdgjax.utils.errors import UserError

DOMAINS = ("r0", "r15", "r30", "r60", "r75")


def command(out: Path, *more: str) -> list[str]:
    return ["fdgjax choose", "--config=:rotated_digits", "--config.rounds=1", "--out", str(out), *more]


def finished(out: Path, name: str, figures: list[float], key: str = "ood_accuracy", **facts: Any) -> None:
    """A finished run's summary, of seeds 0, 1, ..."""
    per_seed = {str(seed): {key: value} for seed, value in enumerate(figures)}
    facts = {"bytes_up_per_round": 1, "bytes_down_per_round": 1, "seconds_per_round": 1.0} | facts
    (out / name).mkdir(parents=True)
    write_checked_json(out / name / "summary.json", {"per_seed": per_seed, **facts})


def test_the_table_the_set_and_the_recommendation_are_read_from_the_runs(tmp_path: Path) -> None:
    """FedProx is as good as FedAvg and costs a byte less; local is 30 points behind; MOON has no finished run."""
    methods, rng = ("fedavg", "fedprox", "local", "moon"), np.random.default_rng(0)
    configs = [make_config(name) for name in methods]
    for config in configs:
        config.seeds = 3
    choosing = choosing_of(configs, "r45")
    cells = cells_of(choosing)
    assert choosing.domains == list(DOMAINS)
    assert {(cell.config.data.target, cell.config.data.excluded) for cell in cells} == {(d, "r45") for d in DOMAINS}
    behind, written = {"fedavg": 0.0, "fedprox": 0.0, "local": 0.3}, {}
    for name in behind:
        for domain in DOMAINS:
            written[name, domain] = [0.7 - behind[name] + 0.01 * float(rng.normal()) for _ in range(3)]
            finished(
                tmp_path,
                f"{name}-{domain}",
                written[name, domain],
                target_majority=0.25,
                bytes_up_per_round=1 + (name == "fedavg"),
            )
    choice = read_choice(choosing, cells, tmp_path, "ood_accuracy", "mean", {})
    assert choice is not None
    assert (choice.recommended, set(choice.indistinguishable)) == ("fedprox", {"fedavg", "fedprox"})
    assert choice.left_out == {"moon": "not finished"}
    assert choice.scores["local"]["r30"] == pytest.approx(np.mean(written["local", "r30"]))
    (local,) = (one for one in choice.methods if one.name == "local")
    differences = [np.subtract(written["local", d], written["fedavg", d]) for d in DOMAINS]
    assert local.difference == pytest.approx(np.mean(differences))
    assert local.error == pytest.approx(np.sqrt(np.mean([np.var(d, ddof=1) for d in differences]) / 15))
    assert choice.interval is not None
    assert choice.interval[0] < 0.7 < choice.interval[1]
    assert "Recommended: fedprox, the cheapest of them" in str(choice)
    assert choice.largest_class == dict.fromkeys(DOMAINS, 0.25)
    assert f"The largest class alone, whatever the sample, reaches {DOMAINS[0]} 25.0, " in str(choice)


@pytest.mark.parametrize(
    ("seeds", "said"), [(1, "5 pairs of domain and seed cannot tell"), (2, "the cheapest of them")]
)
def test_a_cheaper_method_is_not_recommended_where_nothing_could_be_told(tmp_path: Path, seeds: int, said: str) -> None:
    """Local sends nothing and is one point behind, which one seed on five domains cannot show."""
    configs = [make_config("fedavg"), make_config("local")]
    for config in configs:
        config.seeds = seeds
    choosing, rng = choosing_of(configs, "r45"), np.random.default_rng(0)
    for cell in (cells := cells_of(choosing)):
        cheap = cell.group == "local"
        own = [0.7 - 0.01 * cheap + 0.05 * float(rng.normal()) for _ in range(seeds)]
        finished(tmp_path, cell.name, own, bytes_up_per_round=int(not cheap))
    choice = read_choice(choosing, cells, tmp_path, "ood_accuracy", "mean", {})
    assert choice is not None
    assert set(choice.indistinguishable) == {"fedavg", "local"}
    assert choice.recommended == (choice.methods[0].name if seeds == 1 else "local")
    assert said in str(choice)
    assert ("± standard error" in str(choice)) == (seeds > 1)


def test_by_the_worst_domain_the_best_on_it_is_recommended_without_a_test(tmp_path: Path) -> None:
    """A method whose mean is twelve points higher, for certain, and whose worst domain is ten points lower."""
    configs = [make_config("fedavg"), make_config("local")]
    for config in configs:
        config.seeds = 3
    choosing = choosing_of(configs, "r45")
    for cell in (cells := cells_of(choosing)):
        uneven = 0.6 if cell.config.data.target == DOMAINS[0] else 0.9
        finished(tmp_path, cell.name, [0.7] * 3 if cell.group == "fedavg" else [uneven] * 3)
    by = {name: read_choice(choosing, cells, tmp_path, "ood_accuracy", name, {}) for name in ("mean", "worst")}
    assert [choice and choice.recommended for choice in by.values()] == ["local", "fedavg"]
    assert "is not tested" in str(by["worst"])
    assert "mean, from fedavg" in str(by["worst"])
    assert "every other method is told from it" in str(by["mean"])


def test_a_loss_is_chosen_by_its_smallest_and_computed_without_being_told(tmp_path: Path) -> None:
    """Losses whose negatives are the accuracies' make the same choice; a figure that a run lacks makes none."""
    config, found, rng = make_config("fedavg"), {}, np.random.default_rng(1)
    configs = [config, make_config("fedprox"), make_config("local")]
    for one in configs:
        one.seeds = 3
    choosing = choosing_of(configs, "r45")
    cells = cells_of(choosing)
    for cell in cells:
        behind = {"fedavg": 0.2, "fedprox": 0.0, "local": 0.4}[cell.group]
        own = [1.5 + behind + 0.01 * float(rng.normal()) for _ in range(3)]
        finished(tmp_path / "loss", cell.name, own, key="ood_log_loss")
        finished(tmp_path / "accuracy", cell.name, [2 - value for value in own])
    for name, figure in (("loss", "ood_log_loss"), ("accuracy", "ood_accuracy")):
        choice = read_choice(choosing, cells, tmp_path / name, figure, "worst", {})
        assert choice is not None
        found[name] = choice
    loss, accuracy = found["loss"], found["accuracy"]
    assert (loss.recommended, loss.indistinguishable) == (accuracy.recommended, accuracy.indistinguishable)
    assert [one.name for one in loss.methods] == ["fedprox", "fedavg", "local"]
    for one, other in zip(loss.methods, accuracy.methods, strict=True):
        assert one.score == pytest.approx(2 - other.score)
        assert one.difference == (None if other.difference is None else pytest.approx(-other.difference))
    assert loss.interval is not None
    assert loss.interval[1] > 1, "no share"
    assert "Percent" not in str(loss)
    assert "ood_log_loss (smaller is better)" in str(loss)
    assert "smaller" not in str(accuracy)
    with pytest.raises(UserError, match="runs all have the figure 'ood_auroc'"):
        read_choice(choosing, cells, tmp_path / "loss", "ood_auroc", "mean", {})
    args = parser().parse_args(["--config=:rotated_digits", "--out", str(tmp_path), "--figure", "ood_brier"])
    assert with_keys(make_config("fedavg"), args, ["figures=auroc"]).figures == "auroc,brier"


def test_what_is_behind_the_first_is_not_recommended_though_a_noisy_method_keeps_it_in_the_set() -> None:
    """Ten points behind in the mean, and a third method whose seeds differ by thirty."""
    first = np.full((3, 3), 0.7) + np.array([[0.0, 0.01, 0.02]])
    cheap = first - np.array([[0.21, 0.2, 0.19], [0.15, 0.16, 0.15], [-0.06, -0.05, -0.04]])
    noisy = first - 0.3 * np.array([[1, 0, -1], [-1, 1, 0], [0, -1, 1]]) - 0.05
    values = np.stack([first, cheap, noisy])
    best = best_set(values)
    assert set(best.members) == {0, 1, 2}
    assert sorted(not_behind(values, best.members)) == [0, 2]
    assert not_behind(values[:, :, :1], (1, 2, 0)) == [1], "three pairs tell nothing apart"


def test_where_each_method_has_a_failed_run_the_first_of_them_is_told(tmp_path: Path) -> None:
    choosing = choosing_of([make_config(name) for name in ("fedavg", "fedprox")], "r45")
    cells = cells_of(choosing)
    for cell in cells:
        finished(tmp_path, cell.name, [0.5])
    for name in ("fedavg-r15", "fedprox-r30"):
        (tmp_path / name / "summary.json").unlink()
        note_failure(tmp_path, name, f"no {name}\nand more")
    assert read_choice(choosing, cells, tmp_path, "ood_accuracy", "mean", {}) is None
    assert no_choice(cells, tmp_path).endswith("finished; fedavg-r15 failed: no fedavg-r15")


@pytest.mark.parametrize(("figure", "best"), [("ood_loss", "fedprox"), ("ood_accuracy", "fedavg")])
def test_less_loss_is_better_and_more_accuracy(figure: str, best: str, tmp_path: Path) -> None:
    """FedProx has half of FedAvg's loss and half of its accuracy; losses are no percentages and may exceed 1."""
    choosing, rng = choosing_of([make_config(name) for name in ("fedavg", "fedprox")], "r45"), np.random.default_rng(0)
    cells = cells_of(choosing)
    for cell in cells:
        value = (2.0 if cell.group == "fedavg" else 1.0) + 0.01 * rng.normal(size=3)
        (folder := tmp_path / cell.name).mkdir()
        per_seed = {str(i): {"ood_loss": x, "ood_accuracy": x / 3} for i, x in enumerate(value)}
        facts = {"bytes_up_per_round": 1, "bytes_down_per_round": 1, "seconds_per_round": 1.0, "wall_seconds": 2.0}
        write_checked_json(folder / "summary.json", {"per_seed": per_seed, **facts})
    choice = read_choice(choosing, cells, tmp_path, figure, "worst", {})
    assert choice is not None
    assert choice.seconds == 2 * len(cells)
    assert (choice.recommended, choice.indistinguishable) == (best, [best])
    assert choice.methods[0].name == best
    means = choice.scores[best].values()
    assert choice.methods[0].score == pytest.approx(max(means) if figure == "ood_loss" else min(means))
    assert choice.interval is not None
    if figure == "ood_loss":
        assert choice.interval[1] > 1
        assert "Percent" not in str(choice)
        assert f"| {choice.methods[0].score:.3f} |" in str(choice)
    with pytest.raises(UserError, match="the figure 'ood_adapted_accuracy'"):
        read_choice(choosing, cells, tmp_path, "ood_adapted_accuracy", "mean", {})


def test_the_cheapest_has_the_fewest_bytes_then_is_fast_then_good() -> None:
    def of(name: str, size: int, seconds: float, score: float) -> Judged:
        return Judged(name, {}, score, None, None, size, seconds, {})

    dear, slow = of("dear", 9, 0.1, 0.9), of("slow", 5, 2 * AS_FAST, 0.8)
    fast, good = of("fast", 5, 1.0, 0.6), of("good", 5, 0.99 * AS_FAST, 0.7)
    assert cheapest([dear, slow, fast, good]) == good
    assert cheapest([dear, slow, fast]) == fast


def test_draws_differ_from_each_other_and_from_the_configs_own() -> None:
    config = make_config("fedprox")
    drawn = drawn_candidates(config, 4)
    assert [one.name for one in drawn] == [f"fedprox_{i}" for i in range(1, 5)]
    settings = [json.dumps(one.config.method.to_dict(), sort_keys=True) for one in drawn]
    assert len({*settings, json.dumps(config.method.to_dict(), sort_keys=True)}) == 5


def test_training_afterwards_uses_all_domains_or_all_but_the_target() -> None:
    config = make_config("fedavg")
    config.data.excluded = "r45"
    tested = trained_config(config, "r45")
    assert (tested.data.protocol, tested.data.target, tested.data.excluded) == ("leave_one_out", "r45", "")
    config.data.excluded, config.data.clients = "", 4
    everywhere = trained_config(config, "")
    assert (everywhere.data.protocol, everywhere.data.target, everywhere.data.clients) == ("every_domain", "", 0)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--methods", "fedsimclr"], "choose got 'fedsimclr', which learns without labels"),
        (["--methods", "fedavgg"], "fedavgg"),
        (["--config.data.target=r99"], "domain of data.target 'r99'"),
        (["--config.data.excluded=r0,r15,r30,r60,r75"], "choose got 1 training domains, r45; expected at least two"),
        (["--figure", "nonsense"], "the figure got 'nonsense'; expected a key of summary.json that ends in accuracy"),
        (["--config.rouns=3"], "did you mean 'rounds'"),
        (["--config.task=foo"], "unknown task 'foo'"),
        (["--search", "-1"], "choose got search=-1; expected a number of draws"),
        (
            ["--methods", "fedavg,gperxan", "--config.model.name=mlp"],
            "method 'gperxan' got a model without assembled norms",
        ),
        (["--config.selection=oracle", "--methods", "fedavg"], "looks at the unseen domain"),
    ],
)
def test_mistakes_are_one_line(more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path / "out", *more)) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said


def test_a_config_file_of_a_regression_is_chosen_by_its_own_figure(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("""from fdgjax.config import make_config


def get_config():
    config = make_config("fedavg", "rotated_digits")
    config.task, config.model.name = "regression", "mlp"
    return config
""")
    args = parser().parse_args([f"--config={file}", "--out", str(tmp_path / "out")])
    asked = read_asked(args, [], [])
    assert asked.args.figure == "ood_rmse"
    assert all("ood_rmse" in cell.figures for cell in asked.sweep.cells)


def test_a_dry_run_lists_the_runs_and_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--methods", "fedavg,local", "--config.data.target=r45", "--dry-run"]
    assert main(command(tmp_path / "out", *words)) == 0
    said = capsys.readouterr().out
    assert [line.strip() for line in said.splitlines()[:10]] == [
        f"{m}-{d}" for m in ("fedavg", "local") for d in DOMAINS
    ]
    assert "10 left to train, 30 seeds in all" in said
    assert not (tmp_path / "out").exists()


def test_a_share_that_is_done_succeeds_and_the_last_one_chooses(tmp_path: Path) -> None:
    """A scheduler takes another status as a failure, which a task that waits for no one's runs has not had."""
    names = [f"{method}-{domain}" for method in ("fedavg", "local") for domain in DOMAINS]
    words = ["--methods", "fedavg,local", "--config.data.target=r45", "--seeds", "1", "--shard"]
    for name in names[::2]:
        finished(tmp_path, name, [0.5])
    assert main(command(tmp_path, *words, "1/2", "--train")) == 0
    assert not (tmp_path / "choice.json").exists()
    for name in names[3::2]:
        finished(tmp_path, name, [0.5])
    with hold(tmp_path, names[1]):
        assert main(command(tmp_path, *words, "2/2")) == 1, "another process holds a run of this share"
    finished(tmp_path, names[1], [0.5])
    assert main(command(tmp_path, *words, "2/2")) == 0
    assert (tmp_path / "choice.json").exists()


@pytest.mark.slow
def test_from_arrays_to_a_trained_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = {f"site{i}": (rng.integers(0, 256, (40, 8, 8, 1), np.uint8), rng.integers(0, 2, 40)) for i in range(4)}
    made = fdgjax.choose(data=data, methods=["fedavg", "local"], target="site3", seeds=2, rounds=1, out=tmp_path)
    assert set(made.scores) == {"fedavg", "local"}
    assert set(made.scores["fedavg"]) == {"site0", "site1", "site2"}
    for path in tmp_path.rglob("metrics.jsonl"):
        assert "site3" not in path.read_text(), "the target was looked at"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    again = fdgjax.choose(data=data, methods=["fedavg", "local"], target="site3", seeds=2, rounds=1, out=tmp_path)
    assert again == made
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}


@pytest.mark.slow
def test_the_command_chooses_trains_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--methods", "fedavg,local", "--seeds", "1", "--config.data.excluded=r0,r15,r75", "--train"]
    assert main(command(tmp_path, *words)) == 0
    content = json.loads((tmp_path / "choice.json").read_text())
    run = tmp_path / f"trained-{content['recommended']}"
    assert set(fdgjax.open_run(run).summary["per_domain_accuracy"]) == {"r30", "r45", "r60"}
    assert set(read_left_out(run)) == {"r30", "r45", "r60"}
    assert content["commands"]["train"] == content["commands"]["choose"] + " --train"
    (table,) = choice_tables([tmp_path, tmp_path])
    assert [row[0] for row in table.rows] == [one["name"] for one in content["methods"]]
    capsys.readouterr()
    assert main(command(tmp_path, *words)) == 0
    assert "run as one program" not in capsys.readouterr().out


@pytest.mark.slow
def test_data_may_move_before_the_recommended_method_is_trained(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for place in (tmp_path / "old" / f"site{i}" / name for i in range(3) for name in ("a", "b")):
        place.mkdir(parents=True)
        for number in range(6):
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(place / f"{number}.png")
    keys = ["--config=:folder", "--config.data.image_size=16", "--config.model.name=mlp", "--config.rounds=1"]
    words = ["fdgjax choose", *keys, "--methods", "fedavg,fedprox", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert main([*words, f"--config.data.dir={tmp_path / 'old'}"]) == 0
    (tmp_path / "old").rename(tmp_path / "new")
    for _ in range(2):
        assert main([*words, f"--config.data.dir={tmp_path / 'new'}", "--train"]) == 0
    (run,) = (tmp_path / "out").glob("trained-*")
    assert set(read_left_out(run)) == {"site0", "site1", "site2"}
