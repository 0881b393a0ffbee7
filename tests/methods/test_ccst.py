"""CCST: FedAvg without copies, and the loss on restyled images by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context
from fdgjax.data.augmentations.style import EPSILON, Style
from fdgjax.methods.ccst import overall
from fdgjax.methods.parts.bank import Bank, DrawnImages, draw_different_others
from fdgjax.methods.parts.extend import Extended
from tests.toy_models import IMAGE, tiny_model
from tests.toys import build, close, make_case, make_plan, shared_case, toy_federation

pytestmark = pytest.mark.slow

WHOLE = make_plan(drop_nonfinite=True)


def test_without_copies_it_is_fedavg() -> None:
    bare = make_case(build("ccst", toy_federation(), level=0)).advance(3)
    close(bare, shared_case("fedavg", plan=WHOLE).advance(3))


def test_the_style_of_all_images_together_is_that_of_their_pixels() -> None:
    pixels = np.random.default_rng(0).normal(size=(2, 5, 60, 3)) + np.arange(5)[None, :, None, None]
    shown = Style(jnp.asarray(pixels.mean(2), jnp.float32), jnp.asarray(pixels.std(2), jnp.float32))
    found = overall(shown, DrawnImages(jnp.asarray([1, 0, 1]), jnp.zeros(3, jnp.int32), jnp.asarray(True)))
    together = pixels.reshape(2, -1, 3)[[1, 0, 1]]
    np.testing.assert_allclose(found.mean, together.mean(1), rtol=1e-5)
    np.testing.assert_allclose(found.deviation, together.std(1), rtol=1e-5)


def test_copies_of_an_image_are_of_different_clients_each_as_likely_as_any_other() -> None:
    there = jnp.asarray([True, True, False, True, True])
    shown = Style(jnp.zeros((5, 3, 1)), jnp.zeros((5, 3, 1)))
    context = Context(Extended({}, Bank(shown, there)), Extended({}, jnp.int32(1)), {}, jnp.int32(1))
    (first, second), count = jax.random.split(jax.random.key(0)), 6000
    drawn = draw_different_others(first, second, context, count, 3)
    clients = np.stack([one.client for one in drawn])
    assert (np.sort(clients, axis=0) == [[0], [3], [4]]).all()
    for of_copy in clients:
        shares = np.bincount(of_copy, minlength=5) / count
        np.testing.assert_allclose(shares, [1 / 3, 0, 0, 1 / 3, 1 / 3], atol=0.03)
    # More copies than clients: those that there are take turns.
    more = np.stack([one.client for one in draw_different_others(first, second, context, count, 5)])
    assert (more[3:] == more[:2]).all()
    assert all(bool(one.any) for one in drawn)


@pytest.mark.parametrize("styles", ["single", "overall"])
def test_the_objective_is_the_mean_over_images_and_their_restyled_copies(styles: str) -> None:
    """One other client whose images have one style, so that nothing is left to chance; float64 by hand."""
    images = np.random.default_rng(1).uniform(-0.8, 0.8, (4, *IMAGE))
    mean, deviation = 0.2, 0.05
    shape = (2, 3, 1)
    bank = Bank(Style(jnp.full(shape, mean), jnp.full(shape, deviation)), jnp.asarray([True, True]))
    context = Context(Extended({}, bank), Extended({}, jnp.int32(0)), {}, jnp.int32(1))
    labels, mask = np.array([0, 1, 2, 0]), np.array([1, 1, 1, 0])
    batch = Batch(jnp.asarray(images, jnp.float32), jnp.asarray(labels, jnp.int32), jnp.asarray(mask, jnp.float32))
    method = build("ccst", toy_federation(), level=2, styles=styles)
    variables = tiny_model(method="ccst").init(jax.random.key(0))
    loss, _ = method.objective(variables, batch, jax.random.key(2), context)

    own = images.mean((1, 2), keepdims=True), np.sqrt(images.var((1, 2), ddof=1, keepdims=True) + EPSILON)
    copies = np.clip((images - own[0]) / own[1] * deviation + mean, -1, 1)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), jax.device_get(variables["params"]))

    def entropy(x: np.ndarray) -> float:
        hidden = np.maximum(x.reshape(4, -1) @ params["linear_1"]["kernel"] + params["linear_1"]["bias"], 0)
        logits = hidden @ params["linear_2"]["kernel"] + params["linear_2"]["bias"]
        each = np.log(np.exp(logits).sum(1)) - logits[np.arange(4), labels]
        return float(each[mask > 0].mean())

    np.testing.assert_allclose(loss, (entropy(images) + 2 * entropy(copies)) / 3, rtol=1e-5)
