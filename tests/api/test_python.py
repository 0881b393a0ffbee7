"""fdgjax from Python: the same run as the command line's, on arrays, with networks and methods of one's own."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fdgjax
from fdgjax.api.trainer import as_one
from fdgjax.config import to_plain
from fdgjax.models import user_module
from fdgjax.models.client_model import as_model
from fdgjax.run.console import Console
from fdgjax.run.runner import run_config
from fdgjax.utils.errors import UserError
from tests.runs import never, perceptron, records_of, small

__all__ = ["perceptron"]


class Fieldless(nn.Module):
    """Has as many outputs as the data have classes."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(3)(x.reshape(len(x), -1))


class Flat(nn.Module):
    """Takes no `train`."""

    classes: int = 3

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(self.classes)(x.reshape(len(x), -1))


class Bridged(nnx.Module):
    def __init__(self, classes: int, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(12, 5, rngs=rngs), nnx.Linear(5, classes, rngs=rngs)])
        self.norm = nnx.BatchNorm(5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers[1](self.norm(self.layers[0](x.reshape(len(x), -1))))


def arrays(seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Three domains of 20 images of 4x3 whose brightest third is their class."""
    draw = np.random.default_rng(seed)
    found = {}
    for name in ("one", "two", "three"):
        labels = draw.permutation(np.arange(20) % 3)
        images = draw.integers(0, 60, (20, 4, 3, 1), np.uint8)
        images[np.arange(20), :, labels] += 150
        found[name] = (images, labels)
    return found


X, _ = arrays()["one"]


def test_importing_loads_nothing() -> None:
    code = "import sys, fdgjax; dir(fdgjax); print([name for name in ('jax', 'numpy', 'flax') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert set(fdgjax.__all__) <= set(dir(fdgjax))
    assert all(getattr(fdgjax, name) for name in fdgjax.__all__)
    with pytest.raises(AttributeError, match="no attribute 'experimnt'"):
        _ = fdgjax.experimnt


@pytest.mark.slow
@pytest.mark.usefixtures("perceptron")
def test_it_is_the_run_of_the_command_line(cache: Path, tmp_path: Path) -> None:
    config = small(cache)
    run_config(config, tmp_path / "command", Console(), never())
    keys: dict[str, Any] = {"rounds": 4, "local_epochs": 1, "eval_every": 2, "checkpoint_every": 2, "devices": 1}
    trainer = fdgjax.experiment("fedavg:rotated_digits", model="perceptron", data__cache_dir=cache, **keys)
    assert to_plain(trainer.config) == to_plain(config)
    seen: list[int] = []

    def three(record: Mapping[str, Any]) -> bool:
        seen.append(record["round"])
        return len(seen) == 3

    stopped = trainer.train(tmp_path / "python", on_round=three)
    assert (stopped.finished, len(stopped.records), stopped.summary) == (False, 3, {})
    halted = trainer.train(on_round=lambda record: record["round"] == 3)
    assert (halted.records, halted.summary) == (stopped.records, {})
    chex.assert_trees_all_equal(halted.state, stopped.state)
    result = trainer.train(tmp_path / "python", on_round=lambda record: seen.append(record["round"]))
    assert seen == [1, 2, 3, 4]
    assert records_of(tmp_path / "python") == records_of(tmp_path / "command")
    assert (tmp_path / "python/safeguards.npz").is_file()
    alone = trainer.train()
    assert alone.records == result.records
    chex.assert_trees_all_equal(alone.state, result.state)
    assert {key for key in alone.summary if alone.summary[key] != result.summary[key]} <= {
        *("images_per_second", "wall_seconds", "seconds_per_round", "predicted_memory_bytes", "peak_memory_bytes")
    }
    opened = fdgjax.open_run(tmp_path / "command")
    assert opened.summary["ood_accuracy"] == alone.summary["ood_accuracy"]
    images = np.asarray(alone.data.inputs[:70])
    np.testing.assert_array_equal(opened.predict_proba(images), alone.predict_proba(images))


@pytest.mark.slow
def test_arrays_are_learnt_and_predicted(tmp_path: Path) -> None:
    data = arrays()
    trainer = fdgjax.experiment(
        "fedavg",
        data=data,
        target="two",
        classes=("a", "b", "c"),
        model=Flat(),
        rounds=10,
        method__client_learning_rate=0.03,
    )
    with pytest.raises(IndexError):
        trainer.train(tmp_path / "run", on_round=lambda record: [0, 0][record["round"] - 1])
    result = trainer.train(tmp_path / "run")
    assert result.summary["ood_accuracy"] > 0.9
    assert (result.predict(data["two"][0]) == data["two"][1]).mean() == pytest.approx(result.summary["ood_accuracy"])
    np.testing.assert_array_equal(
        result.predict_proba(data["one"][0], domain="three"), result.predict_proba(data["one"][0], client=1)
    )
    (variables,) = result.variables()
    floats = data["one"][0] / np.float32(127.5) - 1
    np.testing.assert_array_equal(
        np.asarray(Flat().apply(variables, floats)).argmax(axis=1), result.predict(data["one"][0])
    )
    again = fdgjax.open_run(tmp_path / "run", data=arrays(), classes=("a", "b", "c"), model=Flat(3))
    assert again.summary == result.summary
    with pytest.raises(UserError, match=r"and .* was trained with 'Flat-.*'; expected the same network, or none"):
        fdgjax.open_run(tmp_path / "run", data=arrays(), classes=("a", "b", "c"), model=nn.Dense(3))
    with pytest.raises(UserError, match=r"needs the data set 'arrays-.*: give the data set .* to fdgjax\.open_run"):
        fdgjax.open_run(tmp_path / "run", data=arrays(1))
    other = fdgjax.experiment("fedavg", data=arrays(1), target="two", model=Flat(), rounds=10)
    with pytest.raises(UserError, match=r"holds another experiment: config\.data\.name"):
        other.train(tmp_path / "run")
    for wrong, said in (
        ({"domain": "four"}, "unknown domain 'four'"),
        ({"client": 2}, "from 0 to 1"),
        ({"seed": 1}, "seed got 1; expected one of the run's seeds, 0 to 0"),
    ):
        with pytest.raises(UserError, match=said):
            result.predict(data["one"][0], **wrong)
    with pytest.raises(UserError, match=r"expected uint8 \[n, 4, 3, 1\]"):
        result.predict(data["one"][0] / 255)
    with pytest.raises(UserError, match=r"got uint8 \[2, 3, 8, 6\]; expected .* make np\.transpose\(images"):
        result.predict(np.zeros((2, 3, 8, 6), np.uint8))


@pytest.mark.parametrize(
    ("sample", "dtype", "network"),
    [
        ((5,), np.float32, "mlp"),
        ((40, 3), np.float32, "conv1d"),
        ((31, 40, 1), np.uint8, "digits_cnn"),
        ((32, 32, 3), np.uint8, "inception"),
    ],
)
def test_arrays_get_a_network_for_their_shape(sample: tuple[int, ...], dtype: Any, network: str) -> None:
    data = {name: (np.zeros((20, *sample), dtype), np.arange(20) % 2) for name in "abc"}
    assert fdgjax.experiment("fedavg", data=data, target="c").config.model.name == network


def test_a_callback_of_several_seeds_has_their_means() -> None:
    records = [
        {"round": 3, "train_loss": 1.0, "ood_accuracy": 0.25},
        {"round": 3, "train_loss": 2.0, "ood_accuracy": 0.75},
    ]
    assert as_one(records) == {"round": 3, "train_loss": 1.5, "ood_accuracy": 0.5, "seeds": records}
    assert as_one([{**one, "privacy_epsilon": 0.5} for one in records])["privacy_epsilon"] == 0.5
    assert as_one(records[:1]) is records[0]


def wide(shift: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Numbers with the axes of images, in [-1, 1] and beyond by the shift."""
    labels = np.arange(8) % 2
    inputs = np.linspace(-1, 1, 8 * 16, dtype=np.float32).reshape(8, 4, 4, 1) + np.float32(shift)
    return dict.fromkeys("abc", (inputs, labels))


@pytest.mark.parametrize(
    ("method", "augmentation", "what"),
    [
        ("fedavg", "trivial", "config.data.augmentation=trivial"),
        ("fedavg", "flip,domainbed", "config.data.augmentation=domainbed"),
        ("feddg", "none", "method 'feddg'"),
    ],
)
def test_colours_are_changed_of_pixels_alone(method: str, augmentation: str, what: str) -> None:
    def built(shift: float, augmentation: str = augmentation, method: str = method) -> object:
        asked: Any = {"data__target": "c", "data__augmentation": augmentation, "data__validation": 0.5, "devices": 1}
        return fdgjax.experiment(method, data=wide(shift), model="linear", **asked).built

    assert built(0.0)
    with pytest.raises(UserError, match=f"{what} changes the colours .* got samples .4, 4, 1. with other numbers"):
        built(0.5)
    assert built(0.5, "flip", "fedavg")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"rounds": 1.5}, r"config\.rounds got 1\.5; expected a whole number"),
        ({"round": 2}, "unknown config key 'round'; .*did you mean 'rounds'"),
        ({"data": arrays(), "data__target": "four"}, "four"),
        (
            {"data": arrays(), "target": "one", "data__target": "two"},
            "got target='one' and data__target='two'; expected",
        ),
        ({"data": arrays(), "data.test": 0.2, "data__test": 0.3}, "got data.test and data__test, which are one key"),
        ({"method": 3}, "config.method got a value but is a section"),
        ({"drop_last": 1}, "expected True or False"),
        ({"classes": ("a", "b")}, "there is no data"),
        ({"data": arrays(), "model": Flat(5)}, r"the model Flat gave shape \[1, 5\] .* expected \[1, 3\]"),
        ({"data": arrays(), "model": "flat"}, "unknown model.name 'flat'"),
        ({"data": arrays(), "model": Bridged}, "expected it through Flax's bridge"),
        ({"data": arrays(), "model": Fieldless}, "got the class Fieldless, .* such as model=MyNet"),
        (
            {"data": arrays(), "model": lambda: Flat()},
            "got the function <lambda>, which cannot be called with the number",
        ),
        ({"data": arrays(), "model": lambda outputs: outputs}, "gave int; expected a linen module"),
        ({"data": arrays(), "model": Flat(), "model__width": 0.5}, "which has one width"),
        ({"data": arrays(), "model": Flat(), "data__image_size": 32}, "are arrays of 4x3; expected 0"),
    ],
)
def test_mistakes_are_one_line(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        fdgjax.experiment("fedavg", **asked)


@pytest.mark.slow
def test_a_module_of_nnx_computes_what_it_computes_itself() -> None:
    model = as_model(user_module.backbone_of(nnx.bridge.to_linen(Bridged, 3))(3), (4, 3, 1))
    variables = jax.jit(model.init)(jax.random.key(1))
    floats = jnp.asarray(X, jnp.float32) / 127.5 - 1
    module = Bridged(3, nnx.Rngs(0))
    for path, leaf in nnx.to_flat_state(nnx.state(module)):
        value = variables[user_module.kind(leaf)]
        for word in path:
            value = value[str(word)]
        leaf.set_value(value)
    nnx.update(module, nnx.from_flat_state(nnx.to_flat_state(nnx.state(module))))
    for train in (False, True):
        (module.train if train else module.eval)()
        output, changed = jax.jit(model.apply, static_argnums=2)(variables, floats, train, jax.random.key(2))
        np.testing.assert_allclose(output.logits, module(floats), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(changed["batch_stats"]["norm"]["mean"], module.norm.mean.get_value(), rtol=1e-5)
