"""What README shows runs: the example in Python, and the method it adds."""

import re
from pathlib import Path

import pytest

from fdgjax.config import Config, DataConfig, ModelConfig
from fdgjax.config.help import meanings
from fdgjax.experiments import build
from fdgjax.methods import METHODS
from fdgjax.run.loop import train_rounds
from tests.docs.pages import README
from tests.runs import perceptron

pytestmark = pytest.mark.slow

__all__ = ["perceptron"]

EXAMPLE, METHOD = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def run(code: str) -> dict:
    names: dict = {"__name__": "example"}
    exec(compile(code, "README.md", "exec"), names)
    return names


@pytest.mark.usefixtures("perceptron")
def test_the_example_in_python_trains_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = EXAMPLE
    for words, instead in {
        "rounds=20": f"rounds=2, eval_every=1, model='perceptron', data__cache_dir={str(tmp_path)!r}",
    }.items():
        assert code.count(words) == 1
        code = code.replace(words, instead)
    run(code)
    first, second, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"1 0\.\d+", first)
    assert re.fullmatch(r"2 0\.\d+", second)
    assert re.fullmatch(r"0\.\d+ 0\.\d+ \[\d \d \d \d \d\]", last)


@pytest.mark.usefixtures("perceptron")
def test_the_worked_example_is_a_complete_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert METHOD.count("\n") < 40
    names = run(METHOD)
    assert names["ENTRY"].name == "fedmedian"
    assert all(meanings(names["FedMedian"]).values())
    monkeypatch.setitem(METHODS, "fedmedian", names["ENTRY"])
    config = Config(
        method=names["FedMedian"](name="fedmedian"),
        model=ModelConfig("perceptron"),
        rounds=3,
        eval_every=3,
        data=DataConfig(cache_dir=str(tmp_path)),
    )
    experiment = build(config)
    losses = [progress.records[0]["train_loss"] for progress in train_rounds(experiment, experiment.init())]
    assert losses[-1] < losses[0]
