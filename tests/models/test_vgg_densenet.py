"""VGG-11 and DenseNet-121: sizes of images, what a method exchanges, and a round's client axis."""

from operator import itemgetter

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.models import UNITS, VGG, DenseNet
from fdgjax.models.client_model import as_model
from fdgjax.utils.errors import UserError

FEW = (1, 2, 1)
"""Layers of dense blocks that compile quickly."""


@pytest.mark.parametrize(("module", "side"), [(VGG(3, 1 / 32), 32), (DenseNet(3, 1 / 32, (1, 1, 1, 1)), 29)])
def test_the_smallest_images_leave_a_pixel_and_smaller_ones_are_a_user_error(module: VGG | DenseNet, side: int) -> None:
    at = lambda side: jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, side, 64, 3)))  # noqa: E731
    assert at(side)["params"]["head"]["bias"].shape == (3,)
    with pytest.raises(UserError, match=rf"got images of {side - 1} x 64 pixels.* at least {side} x {side}: set data"):
        at(side - 1)


@pytest.mark.slow
def test_fdses_variant_replaces_the_last_operator_of_each_layer() -> None:
    model = DenseNet(3, 1 / 8, FEW, unit=UNITS["dse"])
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))["params"]
    for name in ("stage_1_block_1", "stage_2_block_2"):
        assert set(params[name]) == {"bn", "unit_1", "unit_2"}
        assert set(params[name]["unit_1"]) == {"layer", "bn"}
        assert set(params[name]["unit_2"]) == {"dfe", "bn_dse", "dse", "bn_dfe"}


@pytest.mark.slow
def test_a_client_axis_is_a_loop_over_clients() -> None:
    model = as_model(DenseNet(3, 1 / 16, FEW), (32, 32, 3))
    images = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 32, 32, 3)), jnp.float32)
    key = jax.random.key(0)

    def outcome(variables: dict, x: jax.Array) -> tuple:
        output, changed = model.apply(variables, x, True, key)
        return output.logits, changed

    @jax.jit
    def both(images: jax.Array) -> tuple:
        clients = jax.vmap(model.init)(jax.random.split(key, 2))
        one, other = (outcome(jax.tree.map(itemgetter(i), clients), images[i]) for i in (0, 1))
        return jax.vmap(outcome)(clients, images), jax.tree.map(lambda *each: jnp.stack(each), one, other)

    together, alone = both(images)
    chex.assert_trees_all_close(together, alone, rtol=1e-3, atol=1e-5)
