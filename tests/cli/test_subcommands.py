"""The command `fdgjax`: every subcommand is found, lists itself, and loads nothing before it is called."""

import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path

import pytest
from flax.traverse_util import flatten_dict

import fdgjax
from fdgjax.cli import methods, models, presets
from fdgjax.cli.subcommands import COMMANDS, files_of_with, main, subcommand_lines
from fdgjax.config import make_config
from fdgjax.config.command_line import parse
from fdgjax.config.presets import PRESETS, PURPOSES
from fdgjax.config.schema import Config
from fdgjax.data.sources.loading import DATASETS
from fdgjax.methods import METHODS
from fdgjax.models import MODELS
from fdgjax.utils.command import Main
from tests.runs import ROOT


def test_help_has_a_line_for_each_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fdgjax"]) == main(["fdgjax", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == 2 * subcommand_lines().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in subcommand_lines().splitlines()[2:]] == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_a_door(name: str) -> None:
    assert callable(import_module(COMMANDS[name].module).main)


def test_files_of_with_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDGJAX_WITH", "[]")
    files = [tmp_path / "a:b, c.py", tmp_path / 'd"e.py']
    for file in files:
        file.write_text("")
    assert main(["fdgjax", "--with", str(files[0]), f"--with={files[1]}", "--version"]) == 0
    assert files_of_with() == list(map(str, files))
    assert main(["fdgjax", "--version"]) == 0


def test_an_unknown_subcommand_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fdgjax", "trian"]) == 2
    assert "unknown subcommand 'trian'; expected one of" in (said := capsys.readouterr().err)
    assert "did you mean 'train'?" in said
    assert said.count("\n") == 1


def test_the_version_is_the_installed_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fdgjax", "--version"]) == 0
    assert capsys.readouterr().out.strip() == fdgjax.__version__ == metadata.version("fdgjax")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fdgjax.nothing


def test_help_and_import_are_light() -> None:
    code = "import sys; from fdgjax.cli.subcommands import main; main(['fdgjax']); print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.slow
def test_a_module_does_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fdgjax", "train", "--config=fedavgg"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fdgjax: unknown method 'fedavgg'")


def test_no_other_module_is_a_program() -> None:
    package = Path(fdgjax.__file__).parent
    programs = [path for path in package.rglob("*.py") if path.stem == "__main__" or '"__main__"' in path.read_text()]
    # The probe splits the CPU in a process of its own; a node of `fdgjax flower --node` is two processes.
    alone = ("deploy/warm_node.py", "deploy/worker.py", "engine/core_probe.py")
    assert sorted(programs) == sorted(package / name for name in ("__main__.py", "main.py", *alone))


def test_every_method_and_model_is_listed_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert methods.main(["methods"]) == models.main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, entry in (METHODS | MODELS).items():
        assert any(line.split()[:1] == [name] and line.endswith(entry.summary) for line in lines), name


def test_every_preset_is_listed_with_its_data_and_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    assert presets.main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(dict.fromkeys((*DATASETS, *PRESETS)))
    assert all(line.split()[1] in DATASETS for line in lines[1:])
    assert max(map(len, lines)) <= 80
    assert set(PURPOSES) == set(PRESETS) - set(DATASETS)
    # Tables and arrays have no images.
    assert [line.split()[0] for line in lines[1:] if "mlp" in line and "images" in line] == []


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert methods.main(["methods", name]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{name}: {METHODS[name].summary}\n")
    assert f"methods/{name}.py\n" in said
    assert all(f"--config.method.{field.name}=" in said for field in dataclasses.fields(METHODS[name].hyper))
    assert "needs: labels at" in said or "needs: no labels" in said
    assert "docs/" not in said.replace(str(ROOT), "")


def test_what_has_no_effect_by_other_values_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert methods.main(["methods", "fedavg"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    of = {
        key: said.partition(f"--config.method.{key}=")[2].partition("--config")[0]
        for key in ("weighting", "sharpness_eta")
    }
    assert ["No effect with" in words for words in of.values()] == [False, True]


@pytest.mark.slow
def test_a_method_of_ones_own_is_explained_from_its_file(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        '"""Mine.\n\n    w = 1\n\nEnd.\n"""\nfrom fdgjax.methods import Entry, FedAvg, fedavg\n'
        'ENTRY = Entry("mine", FedAvg, fedavg, "of mine")\n'
    )
    words = [sys.executable, "-m", "fdgjax", "--with", str(own), "methods", "mine"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"mine: of mine\nequations and code: {own}\n\nMine.\n\n    w = 1\n\nEnd.\n\nneeds: labels")


@pytest.mark.parametrize("preset", sorted({*DATASETS, *PRESETS}))
@pytest.mark.parametrize("method", ["fedavg", "fdse"])
def test_a_preset_is_what_its_keys_set(preset: str, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert presets.main(["presets", preset, method]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  --config.")]
    shown = dict(line.removeprefix("--config.").split("=", 1) for line in lines)
    default = flatten_dict(dataclasses.asdict(Config(method=METHODS[method].hyper(name=method))), sep=".")
    made = flatten_dict(make_config(method, preset).to_dict(), sep=".")
    assert {key: shown.get(key, str(default[key])) for key in made} == {key: str(value) for key, value in made.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_network_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(["models", name, "--image_size", "64"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{name}: {MODELS[name].summary}\n")
    assert all(stage in said for stage in MODELS[name].stages)


@pytest.mark.parametrize(
    ("main", "word", "kind"),
    [
        (methods.main, "hfdef", "method"),
        (models.main, "resnet", "network"),
        (presets.main, "pax", "data set or preset"),
    ],
)
def test_an_unknown_name_is_one_line(main: Main, word: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fdgjax", word]) == 2
    assert f"unknown {kind} '{word}'; expected one of" in capsys.readouterr().err


def test_the_demo_is_a_training_of_rotated_digits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Sequence[str]] = []

    def train(argv: Sequence[str]) -> int:
        given.append(argv)
        return 0

    monkeypatch.setattr("fdgjax.cli.train.main", train)
    assert main(["fdgjax", "demo", "--config.rounds=1"]) == 0
    assert parse(given[0])[0] == parse(["", "--config=hfedf", "--config.rounds=1"])[0]
    assert "fdgjax presets" in capsys.readouterr().out
    assert main(["fdgjax", "demo", "--help"]) == 0
    assert len(given) == 1
