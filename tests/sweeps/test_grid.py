"""Flags describe the cells that a spec would list, and mistakes in them are one line."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdgjax.cli.sweep import main, parser
from fdgjax.config import make_config
from fdgjax.sweeps.cells import Cell, own_specs, read_spec, spec_file
from fdgjax.sweeps.grid import grid
from fdgjax.sweeps.options import add_options, read_arguments, single_values, spanned, sweep_of
from tests.runs import perceptron

__all__ = ["perceptron"]


def cells_of(*words: str) -> list[Cell]:
    return grid(parser().parse_args([*words, "--out", "DIR"]))


def test_flags_give_the_cells_of_a_spec() -> None:
    methods = ["fedavg", "fedomg", "fediir", "gperxan", "fedccrl"]
    listed = [cell for cell in read_spec(spec_file("rotated_digits"), "paper") if cell.group in methods]
    made = cells_of("--config=:rotated_digits", "--methods", ",".join(methods), "--targets", "all", "--seeds", "3")
    assert [(cell.name, cell.figures, cell.group) for cell in made] == [
        (cell.name, cell.figures, cell.group) for cell in listed
    ]
    assert [cell.config.to_dict() for cell in made] == [cell.config.to_dict() for cell in listed]


def test_each_value_of_a_key_is_a_run_of_its_own() -> None:
    words = [
        "--config=fedprox",
        "--set",
        "method.mu=0.1,0.2",
        "rounds=7",
        "--set",
        'data.augmentation="flip,crop_flip",none',
    ]
    made = cells_of(*words, "--targets", "r0", "r45")
    assert [cell.name for cell in made[:3]] == [
        "fedprox-mu=0.1-data.augmentation=flip_crop_flip-r0",
        "fedprox-mu=0.1-data.augmentation=flip_crop_flip-r45",
        "fedprox-mu=0.1-data.augmentation=none-r0",
    ]
    found = [(c.config.method.mu, c.config.data.augmentation, c.config.data.target, c.config.rounds) for c in made]
    views, targets = ("flip,crop_flip", "none"), ("r0", "r45")
    assert found == [(mu, view, target, 7) for mu in (0.1, 0.2) for view in views for target in targets]
    assert [cell.group for cell in made[:2]] == ["fedprox-mu=0.1-data.augmentation=flip_crop_flip"] * 2


def test_an_excluded_domain_is_never_the_unseen_one() -> None:
    words = ["--config=fedavg", "--set", 'data.excluded="r0,r45"', "data.target="]
    assert [cell.config.data.target for cell in cells_of(*words)] == ["r15"]
    found = [cell.config.data.target for cell in cells_of(*words, "--targets", "all")]
    assert found == ["r15", "r30", "r60", "r75"]


def test_values_of_a_key_span_the_cells_of_a_spec() -> None:
    (first,) = [cell for cell in read_spec(spec_file("rotated_digits"), "paper") if cell.name == "fedavg-r0"]
    before = first.config.to_json()
    made = spanned([first._replace(group=""), first], ["batch_size=16,32", "seeds=2"])
    assert [(cell.name, cell.group) for cell in made] == [
        ("fedavg-batch_size=16-r0", ""),
        ("fedavg-batch_size=16-r0", "fedavg-batch_size=16"),
        ("fedavg-batch_size=32-r0", ""),
        ("fedavg-batch_size=32-r0", "fedavg-batch_size=32"),
    ]
    assert [(cell.config.batch_size, cell.config.seeds) for cell in made] == [(16, 2), (16, 2), (32, 2), (32, 2)]
    assert [cell.reduced for cell in made[1:3]] == ["batch_size=16", "batch_size=32"]
    assert first.config.to_json() == before, "the given cell is as it was"


def test_a_run_of_another_protocol_has_its_own_figures_and_no_target() -> None:
    (one,) = cells_of("--config=fdse", "--set", "data.protocol=every_domain", "data.target=")
    assert (one.name, one.figures) == ("fdse", ("all_accuracy", "avg_accuracy"))
    (one,) = cells_of("--config=fedsimclr", "--set", "data.target=r15")
    assert (one.name, one.figures) == ("fedsimclr-r15", ("probe_accuracy",))


def test_a_config_file_may_be_swept(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from fdgjax.config import make_config\n\n\ndef get_config():\n    config = make_config('fedprox')\n"
        "    config.rounds = 9\n    return config\n"
    )
    (one,) = cells_of(f"--config={file}", "--targets", "r0")
    assert (one.name, one.config.rounds, one.config.data.target) == ("fedprox-r0", 9, "r0")


def test_a_dry_run_lists_the_runs_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["sweep", "--config=:rotated_digits", "--methods", "fedavg,fedprox", "--targets", "all", "--seeds", "3"]
    assert main([*words, "--out", str(out), "--shard", "1/2", "--dry-run"]) == 0
    *names, said = capsys.readouterr().out.splitlines()
    assert names[:2] == ["  fedavg-r0", "  fedavg-r30"]
    assert said.startswith("these 6 of 12 runs in ")
    assert "6 left to train, 18 seeds in all" in said
    assert not out.exists()


def test_devices_are_the_configs_unless_the_command_says_otherwise() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    for asked, of_config, devices in ((None, 0, 1), (None, 2, 2), (3, 2, 3)):
        words = ["--out", "out", *([] if asked is None else ["--devices", str(asked)])]
        config = make_config("fedavg", "rotated_digits")
        config.devices = of_config
        (cell,) = sweep_of([Cell("one", config)], parser.parse_args(words)).shown
        assert cell.config.devices == devices


@pytest.mark.slow
@pytest.mark.usefixtures("perceptron")
def test_a_sweep_by_flags_ends_with_a_table_and_is_not_run_again(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [f"data.cache_dir={cache}", "model.name=perceptron", "local_epochs=1", "rounds=1", "method.mu=0.1,0.5"]
    command = ["sweep", "--config=fedprox", "--targets", "r0", "--out", str(tmp_path / "out"), "--set", *keys]
    assert main(command) == 0
    table = (tmp_path / "out/table.md").read_text()
    assert "| run | figure | ours | seeds |" in table, "no empty columns"
    assert "| fedprox-mu=0.5-r0 | ood_accuracy | " in table
    assert "Reduced" not in table
    capsys.readouterr()
    assert main([*command, "--dry-run"]) == 0
    assert "  fedprox-mu=0.1-r0 (finished)" in capsys.readouterr().out
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("summary.json")}
    assert main(command) == 0
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("summary.json")} == before
    assert len(before) == 2


@given(
    st.lists(st.text('a," \n=b', min_size=1), min_size=1, max_size=3).map(",".join),
    st.sampled_from(["data.label", "data.ignored"]),
)
def test_a_key_of_a_config_is_set_to_what_is_typed_whatever_commas_and_quotes_it_has(value: str, key: str) -> None:
    words = ["--config=fedavg", f"--config.{key}={value}", "--set", "rounds=2", "--out", "out"]
    args = read_arguments(parser(), words)
    assert single_values(args.set) == [f"{key}={value}", "rounds=2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "sweep got neither SPEC nor --config"),
        (["--config=:rotated_digits"], "expected methods in one place, such as --config=fedavg:rotated_digits"),
        (["--config=fedavg", "--methods", "fedprox"], "expected methods in one place"),
        (["rotated_digits", "--methods", "fedavg"], "sweep got the spec 'rotated_digits' and --methods"),
        (["--config=fedavg", "--scale", "cpu"], "--scale got 'cpu' without SPEC"),
        (["--config=:rotated_digits", "--methods", "fedagv"], "unknown method 'fedagv'"),
        (["--config=fedavg:picas"], "unknown data set or preset 'picas'"),
        (["--config=fedavg", "--targets", "r0", "--set", "data.excluded=r0"], "unknown domain of --targets 'r0'"),
        (["--config=fedavg", "--set", "data.label=a\nb"], "got the list 'a\\nb'; expected words separated by commas"),
        (["--config=fedavg", "--targets", "r17"], "unknown domain of --targets 'r17'"),
        (["--config=fedavg:pacs", "--targets", "all"], "config.data.dir got ''"),
        (["--config=fedavg", "--set", "round=3"], "the run fedavg: unknown config key 'round'"),
        (["--config=fedavg", "--config.round=3"], "the run fedavg: unknown config key 'round'"),
        (["--config=fedavg", "rounds=3"], "sweep got the spec 'rounds=3' and --config"),
        (["--config=fedavg", "--rounds=3"], "got '--rounds=3', which is no flag; expected --config.rounds=3"),
        (["--config=fedavg", "--hosts=3"], "fdgjax sweep got '--hosts=3', which is no option"),
        (["--config=fedavg", "--config.rounds=3", "--set", "rounds=4"], "got rounds 2 times; expected it once"),
        (["--config=fedavg", "--set", "rounds=3,many"], "config.rounds got 'many'"),
        (["--config=fedavg", "--set", "rounds=0,3"], "config.rounds got 0"),
        (["--config=fedavg", "--seeds", "0"], "config.seeds got 0"),
        (
            ["--config=fedavg", "--set", "data.target=r0", "--targets", "r15"],
            "expected the unseen domains in one place",
        ),
        (["--config=fedprox", "--set", "method.mu=1", "method.mu=2"], "--set got method.mu 2 times; expected it once"),
        (["--config=fedavg", "--set", "rounds=3,3"], "--set got rounds=3 and rounds=3, which are the same; expected"),
        (["--config=fedprox", "--set", "method.mu=0.1,1e-1"], "method.mu=0.1 and method.mu=1e-1, which are the same"),
        (["--config=fedavg", "--set", "data.target=r0,r45"], "expected --targets r0,r45, whose mean is taken"),
        (
            ["--config=fdse", "--set", "data.protocol=every_domain", "data.target=", "--targets", "r0"],
            "which has no unseen domain; expected no --targets",
        ),
    ],
)
def test_mistakes_are_one_line(
    words: Sequence[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1", "soon"])
def test_a_time_budget_is_a_number_of_seconds(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--config=fedavg", "--out", "DIR", f"--time_budget={seconds}"])
    assert f"got '{seconds}'; expected seconds, from 0" in capsys.readouterr().err


def test_where_and_how_runs_are_computed_is_no_reduction() -> None:
    (cell,) = cells_of("--config=fedavg")
    words = ["devices=2", "writers=", "figures=auroc", "data.cache_dir=C", "checkpoint_every=3"]
    words += ["seeds=2", "data.split_seed=1"]
    assert spanned([cell], words)[0].reduced == cell.reduced
    assert spanned([cell], ["rounds=2"])[0].reduced == "rounds=2"


def test_the_help_lists_the_specs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--help"])
    lines = capsys.readouterr().out.partition("specs of the package:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == list(own_specs())
    assert all(len(line.split()) > 1 and len(line) <= 80 for line in lines)
    assert set(own_specs()) == {path.stem for path in spec_file("rotated_digits").parent.glob("[!_]*.py")}
