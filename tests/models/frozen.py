"""A network of two units of which the first may be frozen, and experiments on it."""

import dataclasses
import functools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import pytest

from fdgjax.config import Config
from fdgjax.engine import State
from fdgjax.experiments import Experiment, build
from fdgjax.methods import METHODS
from fdgjax.models import MODELS, Backbone, StageRange
from fdgjax.models.stages import ALL_STAGES, Passage, through
from fdgjax.models.units import NormUnit, Unit
from tests.runs import small
from tests.toys import small_hyper


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
    with pytest.MonkeyPatch.context() as patch:
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
