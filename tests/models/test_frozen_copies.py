"""Augmented copies of what a frozen trunk computes: each step draws one, and evaluation sees none."""

import dataclasses
import functools
import logging
import shutil
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.config import Config, ModelConfig, from_plain, to_plain
from fdgjax.data.augmentations.training import AUGMENTATIONS
from fdgjax.engine.local import Batching, training_batch
from fdgjax.engine.sharding import own_samples
from fdgjax.experiments import Experiment, build
from fdgjax.run.console import Console
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lent
from tests.models.frozen import built, frozen, rounds, tiny
from tests.runs import StopAfter, assert_same_run, never
from tests.toys import close, toy_federation

__all__ = ["tiny"]


def copied(cache: Path, copies: int, **changes: Any) -> Config:
    config = frozen(cache, rounds=2, **changes)
    data = dataclasses.replace(config.data, augmentation="flip")
    return dataclasses.replace(config, data=data, model=dataclasses.replace(config.model, frozen_copies=copies))


@functools.cache
def built_with_copies(cache: Path, axis: str = "map", devices: int = 1) -> Experiment:
    return build(copied(cache, 3, client_axis=axis, devices=devices))


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_copies_give_the_same_run_however_clients_are_executed(cache: Path) -> None:
    one, other, split = (
        jax.device_get(rounds(built_with_copies(cache, axis, devices), 2))
        for axis, devices in (("map", 1), ("vmap", 1), ("map", 2))
    )
    close(one, other)
    close(one, split)
    assert not np.allclose(jax.tree.leaves(one.server)[0], jax.tree.leaves(rounds(built(cache), 2).server)[0])


@pytest.mark.slow
def test_copies_without_an_augmentation_change_nothing(cache: Path) -> None:
    config = built(cache).config
    same = build(dataclasses.replace(config, model=dataclasses.replace(config.model, frozen_copies=1)))
    chex.assert_trees_all_equal(*(jax.device_get(rounds(one, 2)) for one in (built(cache), same)))


def test_a_device_holds_the_copies_of_its_clients_samples() -> None:
    federation = toy_federation()
    samples = len(federation.labels)
    doubled = federation._replace(inputs=jnp.concatenate([jnp.asarray(federation.inputs)] * 2))
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


def test_copies_of_an_augmentation_of_ones_own_are_not_kept(cache: Path) -> None:
    """The cache knows it by its name, and its code may change."""
    config = copied(cache, 2)
    with lent(AUGMENTATIONS, {"mine": AUGMENTATIONS["flip"]}), pytest.raises(UserError, match=r"'mine' is one of your"):
        from_plain(to_plain(dataclasses.replace(config, data=dataclasses.replace(config.data, augmentation="mine"))))


def test_an_augmentation_without_copies_is_computed_in_each_step(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fdgjax"):
        assert np.asarray(build(copied(cache, 0)).federation.inputs).dtype == np.uint8
    assert "data.augmentation=flip changes images before the model sees them; model.frozen_copies=8" in caplog.text
