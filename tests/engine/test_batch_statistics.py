"""BatchNorm's statistics in local training, as in PyTorch: a last partial batch counts its own samples alone."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Method, PyTree, Setup
from fdgjax.engine import RoundPlan, local
from fdgjax.methods import METHODS
from fdgjax.models import HEADS, UNITS
from fdgjax.models.client_model import as_model
from fdgjax.models.stages import Passage, flattened
from fdgjax.nn import BatchStatistics
from tests.marks import mostly_slow
from tests.toy_models import CLASSES, IMAGE, tiny_model
from tests.toys import BATCH, DOMAINS, close, make_case, make_plan, small_hyper, toy_federation

pytestmark = pytest.mark.slow

PARTIAL = BATCH - 1
ELSEWHERE = {"fedfa": "its layers of augmentation have statistics of their own", "fedmoco": "its queue takes all keys"}
"""Where what fills up a batch has an effect besides BatchNorm's."""


def built(name: str, statistics: BatchStatistics) -> Method:
    """A method whose network has BatchNorm after its first layer."""
    model = tiny_model("dense", name, "norm", statistics)
    return METHODS[name].build(Setup(model, 4, rounds=3, domains=DOMAINS), small_hyper(name))


def after_a_round(method: Method, plan: RoundPlan, lengths: tuple[int, ...]) -> PyTree:
    """The states after a round of clients with so many samples, whole batches and a partial one."""
    return make_case(method, toy_federation(lengths), plan).advance(1)[2:]


def with_batches_of(size: int, axis: str) -> RoundPlan:
    plan = make_plan(axis)
    return plan._replace(batching=plan.batching._replace(batch_size=size))


CASES = [(name, axis) for name in ("fedavg", "fdse", "ditto") for axis in ("map", "vmap")]


@pytest.mark.parametrize(("name", "axis"), mostly_slow(CASES, [("fedavg", "map"), ("fdse", "vmap")]))
def test_a_partial_batch_is_that_batch_alone(name: str, axis: str) -> None:
    method = built(name, BatchStatistics(unbiased=True, masked=True))
    filled, alone = (after_a_round(method, with_batches_of(n, axis), (PARTIAL,) * 4) for n in (BATCH, PARTIAL))
    close(filled, alone)


def differs(method: Method, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether other samples that fill up partial batches change what clients learn."""

    def by_the_last(rows: jax.Array, count: jax.Array, start: jax.Array | int, size: int) -> tuple[Any, Any]:
        positions = start + jnp.arange(size)
        return rows[jnp.minimum(positions, jnp.maximum(count - 1, 0))], positions < count

    lengths = (6, 8, 3, 11)
    before = after_a_round(method, make_plan(), lengths)
    with monkeypatch.context() as patch:
        patch.setattr(local, "slice_rows", by_the_last)
        after = after_a_round(method, make_plan(), lengths)
    return any(
        not np.allclose(one, other, rtol=2e-4, atol=2e-6)
        for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        if jnp.issubdtype(one.dtype, jnp.floating)
    )


@pytest.mark.parametrize("name", mostly_slow(sorted(METHODS.keys() - ELSEWHERE), ("fedavg", "fdse", "fedsimclr")))
def test_what_fills_up_a_batch_has_no_effect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not differs(built(name, BatchStatistics(masked=True)), monkeypatch)


class NormAfterMap(nn.Module):
    """BatchNorm sees what StableFDG adds at its first place: copies, mixed with each other."""

    classes: int

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = Passage("map")(nn.Dense(4, name="linear_1")(x.reshape(len(x), 2, 2, -1)))
        x = UNITS["norm"](nn.Dense, 4, name="linear_2")(x, train=train)
        x = Passage("features")(flattened(Passage("map")(x)))
        self.sow("intermediates", "features", x)
        return nn.Dense(self.classes, name="linear_3")(x)


@pytest.mark.parametrize("copies", mostly_slow((1, 2), (2,)))
def test_nor_have_the_copies_of_stablefdg(copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = as_model(HEADS["styled"](NormAfterMap, CLASSES, 1.0), IMAGE, statistics=BatchStatistics(masked=True))
    explores = small_hyper("stablefdg", copies=copies, probability=1.0)
    method = METHODS["stablefdg"].build(Setup(model, 4, rounds=3, domains=DOMAINS), explores)
    assert not differs(method, monkeypatch)


def test_what_fills_up_a_batch_is_counted_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert differs(built("fedavg", BatchStatistics()), monkeypatch)
