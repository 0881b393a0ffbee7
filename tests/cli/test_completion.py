"""What TAB offers in bash, asked of bash itself."""

import shutil
import subprocess

import pytest

from fdgjax.cli import completion
from fdgjax.cli.subcommands import COMMANDS
from fdgjax.config.presets import PRESETS
from fdgjax.methods import METHODS


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    assert completion.main(["fdgjax completion"]) == 0
    return capsys.readouterr().out


def offered(script: str, line: str) -> list[str]:
    """The words that bash is given for a line, with the cursor at its end."""
    asked = f"{script}\nCOMP_LINE='{line}' COMP_POINT={len(line)}\n_fdgjax\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    found = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert not found.stderr
    return found.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fdgjax ", list(COMMANDS)),
        ("fdgjax tr", ["train"]),
        ("fdgjax train --config=hf", ["hfedf"]),
        ("fdgjax train --config=", list(METHODS)),
        ("fdgjax train --config=hfedf:", list(PRESETS)),
        ("fdgjax train --config=hfedf:rotated_d", ["rotated_digits"]),
        ("fdgjax train --config=hfedf --config.data.tar", ["--config.data.target="]),
        ("fdgjax train --config=hfedf --config.method.alignment_t", ["--config.method.alignment_temperature="]),
        ("fdgjax train --config.data.dir=", []),
        ("fdgjax methods fedpr", ["fedproto", "fedprox"]),
        ("fdgjax presets pretrained_f", ["pretrained_folder"]),
        ("fdgjax presets pacs fedpr", ["fedproto", "fedprox"]),
        ("fdgjax models resnet18", ["resnet18", "resnet18_imagenet"]),
        ("fdgjax predict ", []),
    ],
)
def test_tab_offers(script: str, line: str, words: list[str]) -> None:
    assert sorted(offered(script, line)) == sorted(words)
