"""FDSE's backbone: names a method can label, sizes, and images that are too small."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from fdgjax.models import AlexNet, DSEUnit
from fdgjax.models.alexnet import UNPADDED_ROWS
from fdgjax.utils.errors import UserError
from tests.marks import mostly_slow


def logits(model: AlexNet, *size: int) -> tuple[int, ...]:
    x = jnp.zeros((2, *size, 3))
    return jax.eval_shape(model.init_with_output, jax.random.key(0), x)[0].shape


def test_one_unit_per_row_of_the_table() -> None:
    model = AlexNet(classes=7, unit=DSEUnit)
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 224, 224, 3)))["params"]
    units = {f"conv_{i}" for i in range(1, 6)} | {"linear_1", "linear_2"}
    assert set(params) == units | {"head"}
    assert all(set(params[unit]) == {"dfe", "bn_dse", "dse", "bn_dfe"} for unit in units)
    assert [params[f"conv_{i}"]["bn_dfe"]["scale"].size for i in range(1, 6)] == [64, 192, 384, 256, 256]
    assert params["linear_1"]["dfe"]["kernel"].shape == (9216, 512)


@pytest.mark.parametrize("size", mostly_slow([((63, 63),), ((64, 100),), ((224, 224),)], [((63, 63),), ((64, 100),)]))
def test_image_sizes(size: tuple[int, int]) -> None:
    assert logits(AlexNet(classes=5, width=0.25), *size) == (2, 5)


@pytest.mark.parametrize("size", [(32, 32), (62, 62), (224, 62), (4, 4)])
def test_images_too_small_for_the_pools_are_a_user_error(size: tuple[int, int]) -> None:
    with pytest.raises(UserError, match=f"{size[0]} x {size[1]} pixels.*at least 63 x 63.*data.image_size") as error:
        logits(AlexNet(classes=5), *size)
    assert "\n" not in str(error.value)


def test_without_padding_in_the_last_three_convolutions() -> None:
    """FDSE's official code since 2026: `DSEConv(192, 384, kernel_size=3)` with padding 0, and the same twice."""
    model = AlexNet(classes=5, width=1 / 32, unit=DSEUnit, rows=UNPADDED_ROWS)
    with pytest.raises(UserError, match=r"158 x 158 pixels.*at least 159 x 159"):
        logits(model, 158, 158)
    _, seen = jax.eval_shape(
        partial(model.init_with_output, capture_intermediates=True), jax.random.key(0), jnp.zeros((2, 256, 256, 3))
    )
    sides = [seen["intermediates"][f"conv_{i}"]["dfe"]["__call__"][0].shape[1] for i in range(1, 6)]
    assert sides == [63, 31, 13, 11, 9]
