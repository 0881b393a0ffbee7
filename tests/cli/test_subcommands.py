"""The command `fdgjax`: every subcommand is found, lists itself, and loads nothing before it is called."""

import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import fdgjax
from fdgjax.cli import methods, models
from fdgjax.cli.subcommands import COMMANDS, main, subcommand_lines
from fdgjax.methods import METHODS
from fdgjax.models import MODELS


def test_help_has_a_line_for_each_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fdgjax"]) == main(["fdgjax", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == 2 * subcommand_lines().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in subcommand_lines().splitlines()[2:]] == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_a_door(name: str) -> None:
    assert callable(import_module(COMMANDS[name].module).main)


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


def test_a_module_does_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fdgjax", "train", "--config=fedavgg"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fdgjax: unknown method 'fedavgg'")


def test_no_other_module_is_a_program() -> None:
    package = Path(fdgjax.__file__).parent
    programs = [path for path in package.rglob("*.py") if path.stem == "__main__" or '"__main__"' in path.read_text()]
    assert sorted(programs) == [package / "__main__.py", package / "main.py"]


def test_every_method_and_model_is_listed_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert methods.main(["methods"]) == models.main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, entry in (METHODS | MODELS).items():
        assert any(line.split()[:1] == [name] and line.endswith(entry.summary) for line in lines), name
