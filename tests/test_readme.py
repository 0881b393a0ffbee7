"""What README shows runs: the example in Python, and the method it adds."""

import re
from pathlib import Path

import pytest

from fdgjax.building import build
from fdgjax.config import Config, DataConfig, ModelConfig
from fdgjax.methods import METHODS
from fdgjax.run.training import train
from tests.docs.pages import README
from tests.runs import perceptron

__all__ = ["perceptron"]

EXAMPLE, METHOD = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def run(code: str) -> dict:
    names: dict = {"__name__": "example"}
    exec(compile(code, "README.md", "exec"), names)
    return names


@pytest.mark.usefixtures("perceptron")
def test_the_example_in_python_trains_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shorter = {
        "config.rounds = 20\n": "config.rounds = 2\nconfig.eval_every = 1\nconfig.model.name = 'perceptron'\n",
        'config.data.target = "r45"\n': f'config.data.target = "r45"\nconfig.data.cache_dir = {str(tmp_path)!r}\n',
    }
    code = EXAMPLE
    for line, instead in shorter.items():
        assert code.count(line) == 1
        code = code.replace(line, instead)
    run(code)
    printed = re.findall(r"^round (\d): id (0\.\d{3}), ood (0\.\d{3})$", capsys.readouterr().out, re.MULTILINE)
    assert [number for number, *_ in printed] == ["1", "2"]


@pytest.mark.usefixtures("perceptron")
def test_the_worked_example_is_a_complete_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert METHOD.count("\n") < 40
    names = run(METHOD)
    assert names["ENTRY"].name == "fedmedian"
    monkeypatch.setitem(METHODS, "fedmedian", names["ENTRY"])
    config = Config(
        method=names["FedMedian"](name="fedmedian"),
        model=ModelConfig("perceptron"),
        rounds=3,
        eval_every=3,
        data=DataConfig(cache_dir=str(tmp_path)),
    )
    experiment = build(config)
    losses = [progress.records[0]["train_loss"] for progress in train(experiment, experiment.init())]
    assert losses[-1] < losses[0]
