"""What README promises: its tables are complete and its worked example runs."""

import re
from pathlib import Path

import pytest

from fdgjax.config import Config, DataConfig, ModelConfig
from fdgjax.data.loading import DATASETS
from fdgjax.experiment import build
from fdgjax.methods import METHODS
from fdgjax.models import MODELS, UNITS
from fdgjax.models.cost import cost
from fdgjax.run.training import train
from tests.runs import perceptron

__all__ = ["perceptron"]

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def test_the_table_of_methods_is_the_registry() -> None:
    assert re.findall(r"^\| `(\w+)` \| (.*) \|$", README, re.MULTILINE)[: len(METHODS)] == [
        (name, entry.summary) for name, entry in METHODS.items()
    ]


def test_the_table_of_data_sets_is_the_registry() -> None:
    section = README.partition("### Data sets")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(DATASETS)


def test_the_table_of_models_is_the_registry() -> None:
    section = README.partition("### Models")[2].partition("##")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\S+) M \| (\S+) M \| (.*) \|$", section, re.MULTILINE)
    for name, own, twin, summary in rows:
        assert summary == MODELS[name].summary
        for millions, unit in ((own, None), (twin, UNITS["dse"])):
            parameters = cost(MODELS[name](10, unit=unit), (224, 224, 3)).parameters
            assert f"{parameters / 1e6:.2f}" == millions, name
    assert [name for name, *_ in rows] == list(MODELS)
    assert all(f"`{unit}`" in section for unit in UNITS)


@pytest.mark.usefixtures("perceptron")
def test_the_worked_example_is_a_complete_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    assert code.count("\n") < 40
    names: dict = {"__name__": "example"}
    exec(compile(code, "README.md", "exec"), names)
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
