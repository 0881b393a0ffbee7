"""The vision transformer: widths, tokens, FDSE's variant, and images it cannot take."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.models import UNITS
from fdgjax.models.vit import ViT
from fdgjax.utils.errors import UserError


def params_of(model: ViT, *size: int) -> dict:
    return jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *size, 3)))["params"]


@pytest.mark.parametrize(
    ("width", "heads", "size"), [(1.0, 12, 64), (0.5, 6, 64), (0.25, 3, 64), (1 / 32, 1, 24), (0.3, 4, 58)]
)
def test_width_keeps_heads_of_equal_size(width: float, heads: int, size: int) -> None:
    params = params_of(ViT(3, width, depth=1), 16, 16)
    assert params["block_1"]["attention"]["query"]["kernel"].shape == (heads * size, heads, size)


def test_a_position_for_each_patch_and_the_class_token() -> None:
    assert params_of(ViT(3, 1 / 32, depth=1), 16, 40)["positions"].shape == (1, 1 + 2 * 5, 24)


def test_fdses_variant_replaces_the_feed_forward_layers_last_operator() -> None:
    params = params_of(ViT(3, 1 / 32, depth=2, unit=UNITS["dse"]), 16, 16)
    for i in (1, 2):
        assert set(params[f"block_{i}"]) == {"norm_1", "attention", "norm_2", "mlp_1", "mlp_2"}
        assert set(params[f"block_{i}"]["mlp_2"]) == {"dfe", "bn_dse", "dse", "bn_dfe"}
        assert params[f"block_{i}"]["mlp_2"]["dfe"]["kernel"].shape == (96, 12)


@pytest.mark.slow
def test_patches_know_their_places() -> None:
    model, rng = ViT(3, 1 / 32, depth=1), np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(1, 8, 16, 3)), jnp.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    variables = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.3, leaf.shape), jnp.float32), shapes)
    apply = jax.jit(model.apply)
    swapped = jnp.concatenate([x[:, :, 8:], x[:, :, :8]], axis=2)
    assert not jnp.allclose(apply(variables, x), apply(variables, swapped), atol=1e-3)
    positions = variables["params"]["positions"][:, jnp.array([0, 2, 1])]
    moved = {"params": variables["params"] | {"positions": positions}}
    np.testing.assert_allclose(apply(variables, x), apply(moved, swapped), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(28, 28), (8, 12), (4, 4)])
def test_images_of_broken_patches_are_a_user_error(size: tuple[int, int]) -> None:
    with pytest.raises(UserError, match=f"{size[0]} x {size[1]} pixels; expected multiples.*8: set data.image_size"):
        params_of(ViT(3, 1 / 32), *size)
