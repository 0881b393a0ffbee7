"""A frozen trunk: nothing of it is trained or sent, and what is kept of it changes no number."""

import dataclasses
import functools
import logging
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from fdgjax.config import Config, ModelConfig, from_plain, to_plain
from fdgjax.engine import State
from fdgjax.engine.local import Batching, training_batch
from fdgjax.engine.sharding import own_samples
from fdgjax.experiments import Experiment, build
from fdgjax.methods import METHODS
from fdgjax.models import MODELS, Backbone, StageRange
from fdgjax.models.client_model import as_model, make_client_model, make_network
from fdgjax.models.pretrained.convert import read_weights, starting_from
from fdgjax.models.stages import ALL_STAGES, Passage, through
from fdgjax.models.units import NormUnit, Unit
from fdgjax.run.console import Console
from fdgjax.run.description import fates, label_summary
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of, flatten, merge
from tests.conformance.weights import CLASSES, FILES, SIDE
from tests.marks import mostly_slow
from tests.runs import StopAfter, assert_same_run, never, small
from tests.toys import close, compiling_quickly, small_hyper, toy_federation


class Tiny(nn.Module):
    """Two units with BatchNorm and a linear layer."""

    classes: int
    width: float = 1.0
    unit: Unit = NormUnit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        def unit(x: jax.Array, name: str) -> jax.Array:
            return self.unit(nn.Dense, 12, name=name)(x.reshape(len(x), -1), train=train)

        def head(x: jax.Array) -> jax.Array:
            x = Passage("features")(x)
            self.sow("intermediates", "features", x)
            return nn.Dense(self.classes, name="head")(x)

        return through([partial(unit, name="first"), partial(unit, name="second"), head], self.part, x)


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, compiling_quickly():
        patch.setitem(MODELS, "tiny", Backbone(Tiny, "of the tests", ("first", "second")))
        yield


def frozen(
    cache: Path, method: str = "fedavg", stages: int = 1, keep: bool = True, model: str = "tiny", **changes: Any
) -> Config:
    config = small(cache, method, model, **changes)
    part = dataclasses.replace(config.model, frozen=stages, keep_features=keep)
    hyper = dataclasses.replace(small_hyper(method), name=method)
    return dataclasses.replace(config, model=part, method=hyper)


@functools.cache
def built(cache: Path, method: str = "fedavg", keep: bool = True) -> Experiment:
    """Two rounds of a method on the rest after one frozen stage, built and traced once for all that look at it."""
    return build(frozen(cache, method, keep=keep, rounds=2, data={"protocol": METHODS[method].protocol}))


def rounds(experiment: Experiment, count: int) -> State:
    state = experiment.init()
    for _ in range(count):
        state, _ = experiment.round(state, experiment.train)
    return state


OF_TRUNK = {
    *(f"params/first/{leaf}" for leaf in ("layer/kernel", "layer/bias", "bn/scale", "bn/bias")),
    *(f"batch_stats/first/bn/{leaf}" for leaf in ("mean", "var")),
}
SENT = {
    "fedavg": lambda path: True,
    "fedbn": lambda path: "/bn/" not in path,
    "hfedf": lambda path: path.startswith("params/"),
}
"""Which variables of the rest travel."""


@pytest.mark.parametrize("method", SENT)
def test_frozen_variables_have_their_fate_and_are_on_no_wire(method: str, cache: Path) -> None:
    experiment = built(cache, method)
    table = fates(experiment)
    assert {path for path, fate in table.items() if fate == "frozen"} == OF_TRUNK
    rest = {path: leaf for path, leaf in flatten(experiment.shapes).items() if path not in OF_TRUNK}
    assert set(rest) == set(table) - OF_TRUNK
    once = sum(bytes_of(leaf) for path, leaf in rest.items() if SENT[method](path))
    clients = experiment.facts["clients"]
    assert experiment.facts["bytes_up_per_round"] == experiment.facts["bytes_down_per_round"] == clients * once
    assert experiment.facts["frozen"] == 1
    of_trunk = 64 * 12 + 3 * 12
    assert experiment.facts["frozen_parameters"] == of_trunk
    assert f"frozen      6 variables  {4 * (of_trunk + 2 * 12):12,d} bytes" in label_summary(experiment)


@pytest.mark.parametrize("method", SENT)
def test_no_state_holds_a_frozen_variable(method: str, cache: Path) -> None:
    experiment = built(cache, method)
    state = jax.eval_shape(lambda: experiment.init())
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    assert any("second" in path for path in paths)
    assert not any("first" in path for path in paths)


KEPT = [
    name
    for name, entry in METHODS.items()
    if not entry.unlabelled and not entry.pixels(entry.hyper()) and name not in ("fedfa", "gperxan", "stablefdg")
]
"""Methods whose model alone sees the images (FedFA's, gPerXAN's and StableFDG's want convolutions). If one of them
changed images at random, its runs would differ here."""


@pytest.mark.parametrize("method", mostly_slow(KEPT, ["fedavg"]))
def test_features_that_are_kept_change_nothing(method: str, cache: Path) -> None:
    ends = []
    for keep in (True, False):
        experiment = built(cache, method, keep)
        assert experiment.federation.inputs.shape[1:] == ((12,) if keep else (8, 8, 1))
        state = rounds(experiment, 2)
        ends.append(
            (jax.device_get(state), jax.device_get(experiment.evaluation.observe(state, experiment.federation)))
        )
    close(*(state for state, _ in ends), rtol=2e-3, atol=2e-4)
    (one, other) = (observed for _, observed in ends)
    np.testing.assert_allclose(one.target.loss, other.target.loss, rtol=1e-3)


def test_the_trunk_is_what_it_was_and_predicts_with_the_rest(cache: Path) -> None:
    experiment = built(cache)
    assert experiment.trunk is not None
    before = jax.tree.map(np.copy, experiment.trunk.variables)
    state = rounds(experiment, 2)
    chex.assert_trees_all_equal(experiment.trunk.variables, before)
    trained = jax.tree.map(lambda leaf: leaf[0], experiment.method.unseen(state.server, state.clients))
    x = jnp.asarray(experiment.data.inputs[:5], jnp.float32) / 127.5 - 1
    for train in (False, True):
        ours, changed = experiment.whole.apply(trained, x, train, jax.random.key(0))
        kept = experiment.federation.inputs[:5]
        from_features, _ = experiment.model.apply(trained, kept, train, jax.random.key(0))
        np.testing.assert_allclose(ours.logits, from_features.logits, rtol=1e-4, atol=1e-5)
        assert "first" not in changed.get("batch_stats", {})
    # The whole network's variables, as a file would hold them.
    logits = Tiny(10).apply(merge(experiment.trunk.variables, trained), x)
    np.testing.assert_allclose(
        logits, experiment.whole.apply(trained, x, False, jax.random.key(0))[0].logits, rtol=1e-4
    )


def test_batch_norm_of_the_trunk_normalises_by_the_statistics_it_came_with(cache: Path) -> None:
    trunk = built(cache).trunk
    assert trunk is not None
    x = jnp.linspace(-1, 1, 4 * 64).reshape(4, 8, 8, 1)
    np.testing.assert_allclose(trunk(x)[:2], trunk(x[:2]), rtol=1e-5, atol=1e-6)


def test_the_last_layer_alone(cache: Path) -> None:
    experiment = build(frozen(cache, "fedavg", stages=-1))
    assert set(flatten(experiment.shapes)) == {"params/head/kernel", "params/head/bias"}
    rounds(experiment, 1)


@pytest.mark.parametrize(("method", "changes"), [("feddg", {}), ("hfedf", {"embeddings": "fixed"})])
def test_images_that_a_method_looks_at_are_images(
    method: str, changes: dict, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = frozen(cache, method)
    config = dataclasses.replace(config, method=dataclasses.replace(config.method, **changes))
    with caplog.at_level(logging.INFO, "fdgjax"):
        experiment = build(config)
    assert f"is computed in each step: {method} changes images" in caplog.text
    assert experiment.federation.inputs.dtype == jnp.uint8
    assert "first" not in str(jax.tree.structure(experiment.shapes))
    jax.eval_shape(experiment.round, jax.eval_shape(lambda: experiment.init()), experiment.train)


def test_methods_without_labels_see_images(cache: Path) -> None:
    assert all(entry.unlabelled for name, entry in METHODS.items() if entry.head in ("projection", "prediction"))
    experiment = build(frozen(cache, "fedsimclr"))
    assert experiment.federation.inputs.dtype == jnp.uint8
    jax.eval_shape(experiment.round, jax.eval_shape(lambda: experiment.init()), experiment.train)


@pytest.mark.slow
def test_a_stopped_run_ends_as_one_that_was_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = frozen(tmp_path, "fedbn", seeds=2)
    run_config(config, tmp_path / "whole", Console(), never())
    with pytest.raises(Interrupted):
        run_config(config, tmp_path / "stopped", Console(), StopAfter(4))
    # What was kept is computed again, from the same weights.
    shutil.rmtree(tmp_path / "features")
    with caplog.at_level(logging.INFO, "fdgjax"):
        run_config(config, tmp_path / "stopped", Console(), never())
    assert "12 numbers for each of 1,797 images: 0 MiB (the images: 0 MiB), once, kept in" in caplog.text
    assert_same_run(tmp_path / "whole", tmp_path / "stopped", config)


def test_features_are_computed_once_for_the_same_trunk_and_images(tmp_path: Path) -> None:
    def kept() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("features/*/features.npy")}

    build(frozen(tmp_path))
    first = kept()
    assert len(first) == 1
    build(frozen(tmp_path, "fedbn", seed=3))
    assert kept() == first
    build(frozen(tmp_path, stages=2))
    assert len(kept()) == 2
    scaled = frozen(tmp_path)
    build(dataclasses.replace(scaled, data=dataclasses.replace(scaled.data, scaling="unit")))
    assert len(kept()) == 3


def test_features_that_are_damaged_are_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(frozen(tmp_path))
    (kept,) = tmp_path.glob("features/*/features.npy")
    whole = kept.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    kept.write_bytes(flipped)
    build(frozen(tmp_path))
    assert kept.read_bytes() == whole
    assert len([line for line in caplog.messages if "features.npy differs from its checksum" in line]) == 1


def test_streamed_features_stay_on_the_host(cache: Path) -> None:
    config = built(cache).config
    streamed = build(dataclasses.replace(config, data=dataclasses.replace(config.data, streaming=True)))
    ends = [jax.device_get(rounds(experiment, 1)) for experiment in (built(cache), streamed)]
    close(*ends)


def copied(cache: Path, copies: int, **changes: Any) -> Config:
    config = frozen(cache, rounds=2, **changes)
    data = dataclasses.replace(config.data, augmentation="flip")
    return dataclasses.replace(config, data=data, model=dataclasses.replace(config.model, frozen_copies=copies))


@functools.cache
def built_with_copies(cache: Path, axis: str = "map", devices: int = 1) -> Experiment:
    return build(copied(cache, 3, client_axis=axis, devices=devices))


def test_kept_copies_are_augmented_and_the_samples_themselves_are_not(cache: Path) -> None:
    plain, experiment = built(cache), built_with_copies(cache)
    samples = len(plain.federation.labels)
    features = np.asarray(experiment.federation.inputs)
    assert features.shape == (4 * samples, 12)
    np.testing.assert_array_equal(features[:samples], plain.federation.inputs)
    assert experiment.trunk is not None
    images = jnp.asarray(experiment.data.inputs, jnp.float32) / 127.5 - 1
    flipped = np.asarray(experiment.trunk(images[:, :, ::-1]))
    for block in features[samples:].reshape(3, samples, 12):
        mirrored = np.isclose(block, flipped, atol=1e-4).all(axis=1)
        same = np.isclose(block, features[:samples], atol=1e-4).all(axis=1)
        assert (mirrored | same).all()
        assert 0.4 < mirrored.mean() < 0.6
    # Evaluation sees the samples themselves.
    fresh = plain.init()
    close(*(jax.device_get(one.evaluation.observe(fresh, one.federation)) for one in (plain, experiment)))


def test_every_sample_of_a_step_draws_one_of_its_copies() -> None:
    def drawn(seed: int, copies: int = 3) -> np.ndarray:
        batching = Batching(1, 4, False, copies=copies)
        batch = training_batch(batching, federation, rows, jnp.ones(rows.shape), jax.random.key(seed))
        np.testing.assert_array_equal(batch.labels, federation.labels[rows])
        return np.asarray(batch.inputs)[:, 0]

    federation = toy_federation()
    samples = len(federation.labels)
    federation = federation._replace(inputs=jnp.arange(4 * samples, dtype=jnp.float32)[:, None])
    rows = jnp.arange(samples)
    found = drawn(0)
    np.testing.assert_array_equal(found % samples, rows)
    assert set(found // samples) == {1, 2, 3}
    np.testing.assert_array_equal(found, drawn(0))
    assert not np.array_equal(found, drawn(1))
    np.testing.assert_array_equal(drawn(0, copies=1), samples + rows)
    np.testing.assert_array_equal(drawn(0, copies=0), rows)


def test_copies_give_the_same_run_however_clients_are_executed(cache: Path) -> None:
    one, other, split = (
        jax.device_get(rounds(built_with_copies(cache, axis, devices), 2))
        for axis, devices in (("map", 1), ("vmap", 1), ("map", 2))
    )
    close(one, other)
    close(one, split)
    assert not np.allclose(jax.tree.leaves(one.server)[0], jax.tree.leaves(rounds(built(cache), 2).server)[0])


def test_copies_without_an_augmentation_change_nothing(cache: Path) -> None:
    config = built(cache).config
    same = build(dataclasses.replace(config, model=dataclasses.replace(config.model, frozen_copies=1)))
    chex.assert_trees_all_equal(*(jax.device_get(rounds(one, 2)) for one in (built(cache), same)))


def test_a_device_holds_the_copies_of_its_clients_samples() -> None:
    federation = toy_federation()
    samples = len(federation.labels)
    doubled = federation._replace(inputs=jnp.concatenate([federation.inputs] * 2))
    for rows, both in zip(*(own_samples([one], 2) for one in (federation, doubled)), strict=True):
        np.testing.assert_array_equal(both, [*rows, *(rows + samples)])


@pytest.mark.slow
def test_a_stopped_run_with_copies_ends_as_one_that_was_not(tmp_path: Path) -> None:
    config = dataclasses.replace(copied(tmp_path, 2), rounds=4)
    run_config(config, tmp_path / "whole", Console(), never())
    with pytest.raises(Interrupted):
        run_config(config, tmp_path / "stopped", Console(), StopAfter(4))
    shutil.rmtree(tmp_path / "features")
    run_config(config, tmp_path / "stopped", Console(), never())
    assert_same_run(tmp_path / "whole", tmp_path / "stopped", config)


def test_copies_need_frozen_stages(cache: Path) -> None:
    with pytest.raises(UserError, match=r"frozen_copies got 2, but nothing is frozen"):
        from_plain(to_plain(dataclasses.replace(copied(cache, 2), model=ModelConfig("tiny", frozen_copies=2))))


def test_an_augmentation_without_copies_is_computed_in_each_step(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fdgjax"):
        assert build(copied(cache, 0)).federation.inputs.dtype == jnp.uint8
    assert "data.augmentation=flip changes images before the model sees them; model.frozen_copies=8" in caplog.text


@pytest.mark.parametrize(
    ("model", "stages", "said"),
    [
        (
            "tiny",
            3,
            r"frozen got 3 for the model 'tiny'; expected at most 2, or -1 for all: its stages are first, second",
        ),
        ("tiny", -2, r"config.model.frozen got -2; expected at least -1"),
        ("stageless", 1, r"frozen got 1 for the model 'stageless'; expected at most 0, .*it has no stages"),
    ],
)
def test_stages_that_are_not_there(
    model: str, stages: int, said: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "stageless", Backbone(Tiny, "of the tests"))
    with pytest.raises(UserError, match=said):
        build(from_plain(to_plain(frozen(cache, model=model, stages=stages))))


def test_without_weights_the_run_says_that_the_trunk_is_random(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fdgjax"):
        build(frozen(cache))
    assert "the frozen stages of tiny are random, the same for every seed" in caplog.text


def test_trunk_and_rest_start_from_a_file(tmp_path: Path) -> None:
    name, file = "resnet18_imagenet", tmp_path / "weights.safetensors"
    save_file(FILES[name](), file)
    network = partial(make_network, name, CLASSES, width=1 / 16)
    weights = read_weights(str(file), name)
    made = make_client_model(network, name, (SIDE, SIDE, 3), frozen=3, scaling="imagenet", weights=weights)
    assert made.trunk is not None
    assert made.trunk.stages == ("stem", "stage_1", "stage_2")
    whole = starting_from(weights, as_model(network(), (SIDE, SIDE, 3), "imagenet"))
    variables, rest = (jax.jit(model.init)(jax.random.key(1)) for model in (whole, made.rest))
    chex.assert_trees_all_equal(merge(made.trunk.variables, rest), dict(variables))
    x, key = jnp.linspace(-1, 1, 2 * SIDE * SIDE * 3).reshape(2, SIDE, SIDE, 3), jax.random.key(0)
    expected = jax.jit(lambda x: whole.apply(variables, x, False, key)[0].logits)(x)
    np.testing.assert_allclose(
        jax.jit(lambda x: made.whole.apply(rest, x, False, key)[0].logits)(x), expected, rtol=1e-3, atol=1e-4
    )
