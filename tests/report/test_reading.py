"""Seeds of one experiment come together however they lie in folders; what differs is found; mistakes are one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from fdgjax.experiments import DataDescription, from_description
from fdgjax.report.reading import marked_name, read_runs
from fdgjax.utils.checksums import CHECKSUM, json_sha256, read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from tests.report.folders import lines_of, record, write_run


def test_seeds_of_one_folder_and_of_several_are_the_same_run(tmp_path: Path) -> None:
    write_run(tmp_path / "together/run", seeds=(0, 1, 2))
    for seed in range(3):
        write_run(tmp_path / f"apart/{seed}", seeds=(seed,), devices=1 + seed, checkpoint_every=1 + seed)
    (one,), (other,) = (read_runs([tmp_path / name]) for name in ("together", "apart"))
    assert [seed.seed for seed in one.seeds] == [seed.seed for seed in other.seeds] == [0, 1, 2]
    for name in ("ood_accuracy", "per_domain_accuracy"):
        assert one.values(name) == other.values(name) == [record("fedavg", seed, 6)[name] for seed in range(3)]
    assert one.settings == other.settings == {}
    assert (one.series, one.panel) == ("fedavg", "r45 unseen")


def test_a_folder_given_twice_is_read_once(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    assert len(read_runs([path, tmp_path, path / "../run"])) == 1


def test_what_differs_is_found(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "fedavg")
    write_run(tmp_path / "b", "fedavg", method={"client_learning_rate": 0.5})
    write_run(tmp_path / "c", "fedprox", local_epochs=7)
    a, b, c = read_runs([tmp_path])
    assert set(a.settings) == {"local_epochs", "method.client_learning_rate"}
    assert b.settings["method.client_learning_rate"] == "0.5"
    # What a single run of a method has is no news in its name.
    assert (b.series, c.series) == ("fedavg, client_learning_rate 0.5", "fedprox")
    assert a.series != b.series


def test_a_seed_that_is_there_twice_is_another_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, seeds=(3,))
    runs = read_runs([tmp_path])
    assert [run.settings for run in runs] == [{"folder": str(tmp_path / "a")}, {"folder": str(tmp_path / "b")}]
    assert len({run.series for run in runs}) == 2


def test_two_sweeps_of_the_same_runs_are_compared_as_wholes(tmp_path: Path) -> None:
    """Each is one series over its domains, with all its seeds, though only one run is in both."""
    for sweep, seed in (("one", 3), ("other", 4)):
        for own in (0, 1):
            write_run(tmp_path / sweep / f"avg-{own}", seeds=(own,))
        write_run(tmp_path / sweep / "prox", "fedprox", seeds=(seed,))
    first, second = tmp_path / "one", tmp_path / "other"
    runs = read_runs([first, second])
    assert [(run.method, [seed.seed for seed in run.seeds]) for run in runs] == [
        ("fedavg", [0, 1]),
        ("fedprox", [3, 4]),
        ("fedavg", [0, 1]),
    ]
    assert [run.settings.get("folder") for run in runs] == [str(first), None, str(second)]


def test_a_round_that_the_unseen_domain_chose_is_marked(tmp_path: Path) -> None:
    write_run(tmp_path / "fair")
    write_run(tmp_path / "bound", "fedprox", selection="oracle")
    fair, bound = sorted(read_runs([tmp_path]), key=lambda run: run.method)
    assert (fair.label, bound.label) == ("fedavg", "fedprox (oracle)")
    assert marked_name("both", [fair, bound]) == "both (some oracle)"


def test_an_unfinished_run_has_the_figures_it_would_report_now(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", done=5)
    file = path / "seed_0/metrics.jsonl"
    whole = lines_of(path, 0)
    file.write_text(file.read_text() + '{"round": 6, "ood_acc')
    (run,) = read_runs([path])
    assert run.seeds[0].records == whole
    assert run.seeds[0].figures["ood_accuracy"] == record("fedavg", 0, 4)["ood_accuracy"]
    assert run.seeds[0].summary == {}


def test_an_unfinished_run_is_tested_on_the_domain_of_its_data(tmp_path: Path) -> None:
    """Its config may leave it open, for the first."""
    for name, done in (("finished", 6), ("unfinished", 5)):
        path = write_run(tmp_path / name, "fedavg" if done == 6 else "hfedf", seeds=(0,), done=done)
        content = read_checked_json(path / "config.json")
        content["config"]["data"]["target"] = ""
        write_checked_json(path / "config.json", content)
        federation = dict.fromkeys(("train", "validation", "test"), (2, 5)) | {"target": (1, 9), "server": (1, 1)}
        data = DataDescription(("0", "1"), ("r45", "r0", "r15"), "r45", (8, 8, 1), 2, (40, 8, 8, 1), federation)
        write_checked_json(path / "data.json", from_description(data))
    assert {run.panel for run in read_runs([tmp_path])} == {"r45 unseen"}


def test_runs_on_other_samples_are_other_experiments(tmp_path: Path) -> None:
    federation = dict.fromkeys(("train", "validation", "test"), (2, 5)) | {"target": (1, 9), "server": (1, 1)}
    data = DataDescription(("0", "1"), ("r45", "r0", "r15"), "r45", (8, 8, 1), 2, (40, 8, 8, 1), federation)
    for seed, digest in enumerate(("aaaa", "aaaa", "bbbb")):
        path = write_run(tmp_path / f"{seed}", seeds=(seed,))
        write_checked_json(path / "data.json", from_description(data._replace(content=digest)))
    runs = read_runs([tmp_path])
    assert [[seed.seed for seed in run.seeds] for run in runs] == [[0, 1], [2]]
    assert [run.settings for run in runs] == [{"data.digest": "aaaa"}, {"data.digest": "bbbb"}]


def test_other_pixels_and_earlier_runs_without_a_digest_are_no_other_samples(tmp_path: Path) -> None:
    federation = dict.fromkeys(("train", "validation", "test"), (2, 5)) | {"target": (1, 9), "server": (1, 1)}
    data = DataDescription(("0", "1"), ("r45", "r0", "r15"), "r45", (8, 8, 1), 2, (40, 8, 8, 1), federation)
    for name, seed, size, digest in (("a", 0, 8, "aaaa"), ("b", 1, 8, ""), ("c", 0, 12, "cccc")):
        path = write_run(tmp_path / name, seeds=(seed,), data={"image_size": size})
        write_checked_json(path / "data.json", from_description(data._replace(content=digest)))
    runs = read_runs([tmp_path])
    assert [[seed.seed for seed in run.seeds] for run in runs] == [[0, 1], [0]]
    assert [run.panel for run in runs] == ["r45 unseen"] * 2


def test_a_run_that_has_just_begun_has_no_figures(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", done=0)
    (path / "seed_1/metrics.jsonl").unlink()
    (run,) = read_runs([path])
    assert run.values("ood_accuracy") == []
    assert run.facts == {"rounds": 6}


def checked(content: dict[str, Any]) -> str:
    return json.dumps(content | {CHECKSUM: json_sha256(content)})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "which holds no run"),
        ("{", "is damaged"),
        (checked({"something": "else"}), "has no 'config'"),
        (checked({"config": {"seed": 0}}), "has no 'method'"),
        (checked({"config": {"seed": 0}}).replace("0}", "1}"), "does not have the checksum"),
    ],
)
def test_folders_that_are_no_run(content: str | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=said) as error:
        read_runs([tmp_path])
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        read_runs([tmp_path / "nowhere"])
