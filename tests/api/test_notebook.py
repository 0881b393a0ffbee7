"""What a person tries in a notebook with arrays, networks and callbacks of her own."""

import functools
import threading
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx

import fdgjax
from fdgjax.api.trainer import lending, named_arrays
from fdgjax.data.sources.loading import DATASETS
from fdgjax.methods import METHODS
from fdgjax.methods.fedavg import ENTRY as FEDAVG
from fdgjax.utils.errors import UserError

SAMPLES = 12


def arrays(*shape: int, dtype: Any = np.float32) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Three domains of numbers 0 and 1 of a shape, of two classes."""
    draw = np.random.default_rng(0)
    return {name: (draw.integers(0, 2, (SAMPLES, *shape)).astype(dtype), np.arange(SAMPLES) % 2) for name in "abc"}


def built(method: Any = "fedavg", **keys: Any) -> fdgjax.Trainer:
    return fdgjax.experiment(method, devices=1, data__validation=0.3, rounds=1, **keys)


@functools.cache
def trained() -> fdgjax.Result:
    return built(data=arrays(3, dtype=bool), model="linear", seeds=2).train()


@pytest.mark.slow
def test_predictions_are_of_the_samples_that_training_took() -> None:
    samples = arrays(3, dtype=bool)["a"][0]
    np.testing.assert_array_equal(trained().predict(samples), trained().predict(samples.astype(float)))
    with pytest.raises(UserError, match="masked array with masked values"):
        trained().predict(np.ma.masked_array(samples.astype(float), mask=samples))


class Silent(nn.Module):
    """Sows nothing, and draws from a stream of its own if it has a name."""

    stream: str = ""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        noise = jax.random.normal(self.make_rng(self.stream), x.shape) if self.stream and train else 0
        return nn.Dense(2)((x + noise).reshape(len(x), -1))


@pytest.mark.slow
def test_a_network_that_sows_no_features_has_none() -> None:
    result = built(data=arrays(3), model=Silent()).train()
    with pytest.raises(UserError, match=r"sows no features; expected one that sows"):
        result.features(arrays(3)["a"][0])


@pytest.mark.slow
def test_a_stream_that_is_not_given_is_one_line() -> None:
    assert built(data=arrays(3), model=Silent("dropout")).train().finished
    with pytest.raises(UserError, match=r"draws random numbers .*noise.*; expected the stream 'dropout'"):
        built(data=arrays(3), model=Silent("noise")).train()


@pytest.mark.slow
def test_layers_that_follow_each_other_are_a_network() -> None:
    layers = nn.Sequential([lambda x: x.reshape(len(x), -1), nn.Dense(4), nn.relu, nn.Dense(2)])
    result = built(data=arrays(2, 3), model=layers).train()
    (variables,) = result.variables()
    x = arrays(2, 3)["a"][0]
    np.testing.assert_array_equal(result.predict(x), np.asarray(layers.apply(variables, x)).argmax(axis=1))


class Chain(nnx.Sequential):
    def __init__(self, classes: int, rngs: nnx.Rngs) -> None:
        super().__init__(nnx.Linear(3, 4, rngs=rngs), nnx.relu, nnx.Linear(4, classes, rngs=rngs))


def test_layers_of_nnx_that_follow_each_other_are_a_network() -> None:
    assert built(data=arrays(3), model=nnx.bridge.to_linen(Chain, 2)).built.facts["parameters"] == 3 * 4 + 4 + 4 * 2 + 2


@pytest.mark.slow
def test_a_callback_changes_no_records(tmp_path: Path) -> None:
    def spoil(record: dict[str, Any]) -> None:
        record["own"] = np.float32(1)
        record["client_loss"].clear()

    trainer = built(data=arrays(3), model="linear")
    spoilt = trainer.train(tmp_path / "run", spoil)
    assert spoilt.records == trainer.train().records
    assert fdgjax.open_run(tmp_path / "run", data=arrays(3)).records == spoilt.records


@pytest.mark.slow
def test_a_result_shows_the_round_whose_state_it_has(tmp_path: Path) -> None:
    trainer = fdgjax.experiment("fedavg", data=arrays(3), model="linear", rounds=2, checkpoint_every=1, devices=1)
    trainer.train(tmp_path / "run")
    shown = {round_: repr(fdgjax.open_run(tmp_path / "run", data=arrays(3), round=round_)) for round_ in (1, 2)}
    assert [f"round {round_}:" in text for round_, text in shown.items()] == [True, True]


def test_data_stay_as_long_as_a_thread_needs_them() -> None:
    given = named_arrays(arrays(3), None)
    (name,) = given
    entered, leave = threading.Event(), threading.Event()

    def longer() -> None:
        with lending(given):
            entered.set()
            leave.wait()

    other = threading.Thread(target=longer)
    with lending(given):
        other.start()
        entered.wait()
    assert name in DATASETS
    leave.set()
    other.join()
    assert name not in DATASETS


def test_what_stood_in_a_registry_comes_back() -> None:
    mine = fdgjax.register_data("mine", arrays(3))
    own, lent = DATASETS[mine], named_arrays(arrays(4), None)
    with lending({mine: next(iter(lent.values()))}):
        assert DATASETS[mine] is not own
    assert DATASETS[mine] is own


def test_names_of_numpy_are_words() -> None:
    words: dict[str, Any] = {np.str_(name): pair for name, pair in arrays(3).items()}
    assert named_arrays(words, None).keys() == named_arrays(arrays(3), None).keys()


@pytest.mark.parametrize("name", ["my-own", "my.own"])
def test_a_methods_name_is_bare_whatever_its_signs(name: str) -> None:
    fdgjax.register_method(FEDAVG._replace(name=name))
    assert name in METHODS
    assert built(name, data=arrays(3)).config.model.name == built(data=arrays(3)).config.model.name == "mlp"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"data": arrays(3), "model": "resnet10"}, r"'resnet10' got samples of shape \[3\]; expected images"),
        ({"data": arrays(3), "model": "vit_b8"}, r"'vit_b8' got samples of shape \[3\]; expected images"),
        ({"data": arrays(2, 2, 2, 1)}, r"'inception' got samples of shape \[2, 2, 2, 1\]; expected images"),
        ({"data": arrays(3), "client_learning_rate": 0.1}, r"did you mean 'method.client_learning_rate'\?$"),
        (
            {"data": {name: (x, y + 0.5) for name, (x, y) in arrays(3).items()}, "classes": [0, 1]},
            "has labels that are floats, and the classes 0, 1; expected no names",
        ),
    ],
)
def test_a_mistake_is_one_line(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        built(**asked)


def test_float64_is_refused() -> None:
    with jax.enable_x64(True), pytest.raises(UserError, match=r"jax_enable_x64.*; expected float32"):
        built(data=arrays(3))
