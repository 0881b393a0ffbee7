"""The parts of self-supervised learning: what is compared, what follows, what is remembered."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context, Model
from fdgjax.models import HEADS
from fdgjax.models.client_model import as_model
from fdgjax.objectives import info_nce, negative_cosine, nt_xent
from fdgjax.objectives.self_supervised import directions
from fdgjax.objectives.two_views import PARTS, TwoViewSettings, extended, of_model
from tests.toy_models import CLASSES, DenseNet
from tests.toys import by_numpy, close

pytestmark = pytest.mark.slow

IMAGE = (4, 4, 1)
SETTINGS = TwoViewSettings(temperature=0.5, decay=0.75, queue=6, dimension=8)
NOWHERE = Context((), (), {}, jnp.int32(0))


def marked(key: jax.Array, images: jax.Array) -> jax.Array:
    """A view that its key decides, for every image alike."""
    return images * jax.random.uniform(key, (), minval=0.5, maxval=1.5)


@functools.cache
def network(part: str) -> Model:
    head = "prediction" if part in ("byol", "simsiam") else "projection"
    return as_model(HEADS[head](DenseNet, CLASSES, 1 / 256), IMAGE)


@functools.cache
def setting(part: str) -> tuple[Any, Batch, Any]:
    variables = jax.jit(extended(network(part), PARTS[part], SETTINGS).init)(jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (4, *IMAGE), minval=-1.0)
    batch = Batch(images, jnp.zeros(4, jnp.int32), jnp.asarray([1.0, 1.0, 1.0, 0.0]))
    objective = jax.jit(PARTS[part].objective(network(part), marked, SETTINGS))
    return variables, batch, objective


def two(batch: Batch, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    first, second, _ = jax.random.split(key, 3)
    return marked(first, batch.inputs), marked(second, batch.inputs)


def run(part: str, which: Any, images: jax.Array) -> Any:
    return network(part).apply(which, images, True, jax.random.key(0))[0]


def nearer(variables: Any) -> Any:
    return jax.tree.map(lambda t, s: 0.75 * t + 0.25 * s, variables["target"], of_model(variables))


def expected(part: str, variables: Any, batch: Batch, key: jax.Array) -> jax.Array:
    views, mean = two(batch, key), lambda x: jnp.mean(x[:3])
    if part == "moco":
        asked, answer = run(part, of_model(variables), views[0]), run(part, nearer(variables), views[1])
        return info_nce(asked.logits, answer.logits, variables["queue"]["keys"], batch.mask, temperature=0.5)
    if part == "simclr":
        first, second = jnp.split(run(part, of_model(variables), jnp.concatenate(views)).logits, 2)
        return nt_xent(first, second, batch.mask, temperature=0.5)
    own = [run(part, of_model(variables), images) for images in views]
    p, z = [output.extra["prediction"] for output in own], [output.logits for output in own]
    if part == "simsiam":
        return 0.5 * mean(negative_cosine(p[0], z[1]) + negative_cosine(p[1], z[0]))
    t = [run(part, nearer(variables), images).logits for images in views]
    # Grill et al., 2020: both directions are added up, SimSiam's are averaged.
    return mean(4 + 2 * negative_cosine(p[0], t[1]) + 2 * negative_cosine(p[1], t[0]))


@pytest.mark.parametrize("part", sorted(PARTS))
def test_the_loss_is_the_papers(part: str) -> None:
    variables, batch, objective = setting(part)
    # A target apart from the model, so that it matters which is asked.
    if "target" in variables:
        variables = variables | {
            "target": by_numpy(lambda leaf: np.float32(0.5) * leaf + np.float32(0.1), variables["target"])
        }
    loss, _ = objective(variables, batch, jax.random.key(5), NOWHERE)
    wanted = jax.jit(functools.partial(expected, part))(variables, batch, jax.random.key(5))
    np.testing.assert_allclose(loss, wanted, rtol=1e-4)


@pytest.mark.parametrize("part", sorted(PARTS))
def test_what_is_kept_follows_the_model_and_every_parameter_that_should_learns(part: str) -> None:
    variables, batch, objective = setting(part)
    moved = variables | {"params": jax.tree.map(lambda leaf: leaf + 1, variables["params"])}
    loss = lambda params: objective(moved | {"params": params}, batch, jax.random.key(5), NOWHERE)  # noqa: E731
    (_, changed), gradient = jax.value_and_grad(loss, has_aux=True)(moved["params"])
    assert set(changed) == set(variables) - {"params"}
    if "target" in changed:
        close(changed["target"], nearer(moved))
    if "queue" in changed:
        answer = run(part, nearer(moved), two(batch, jax.random.key(5))[1]).logits
        close(changed["queue"]["keys"][:4], directions(answer))
        close(changed["queue"]["keys"][4:], variables["queue"]["keys"][:2])
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        name = jax.tree_util.keystr(path)
        assert np.isfinite(leaf).all()
        # BatchNorm takes away the biases of the layers before it, and cosines their own scale.
        assert np.any(leaf) or "bias" in name or "linear" in name, name


@pytest.mark.parametrize("part", sorted(PARTS))
def test_the_views_are_drawn_anew(part: str) -> None:
    variables, batch, objective = setting(part)
    losses = {float(objective(variables, batch, jax.random.key(k), NOWHERE)[0]) for k in range(3)}
    assert len(losses) == 3


def by_hand(params: Any, images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The toy network and its head on one view in NumPy, float64: z, p and the mean that the first BatchNorm sees."""

    def dense(layer: Any, x: np.ndarray) -> np.ndarray:
        return x @ layer["kernel"] + layer["bias"]

    def normed(layer: Any, x: np.ndarray) -> np.ndarray:
        return layer["scale"] * (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5) + layer["bias"]

    head = params["projector"]
    hidden = dense(params["linear_2"], np.maximum(dense(params["linear_1"], images.reshape(len(images), -1)), 0))
    z = dense(head["out"], np.maximum(normed(head["bn"], hidden), 0))
    inner = np.maximum(normed(head["predictor_bn"], dense(head["predictor_in"], z)), 0)
    return z, dense(head["predictor_out"], inner), hidden.mean(axis=0)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sum(a * b, axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


@pytest.mark.parametrize(("part", "factor"), [("simsiam", 0.5), ("byol", 2.0)])
def test_each_view_passes_alone_as_by_hand(part: str, factor: float) -> None:
    """The gradient against differences of a NumPy network in float64 that passes view after view, its targets fixed, as
    in the official code; and the running means, which take in both views one after the other."""
    variables, batch, objective = setting(part)
    key = jax.random.key(5)
    (_, changed), gradient = jax.value_and_grad(
        lambda params: objective(variables | {"params": params}, batch, key, NOWHERE), has_aux=True
    )(variables["params"])
    views = [np.asarray(images, np.float64) for images in two(batch, key)]
    start, gradient = (
        jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree) for tree in (variables["params"], gradient)
    )
    targets = [by_hand(start, images)[0] for images in views]
    rng = np.random.default_rng(0)

    def loss(params: Any) -> float:
        p = [by_hand(params, images)[1] for images in views]
        return -factor * float(np.mean((cosines(p[0], targets[1]) + cosines(p[1], targets[0]))[:3]))

    for _ in range(4):
        way = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), start)
        ahead, behind = (jax.tree.map(lambda w, d, e=e: w + e * d, start, way) for e in (1e-5, -1e-5))
        slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: np.sum(g * d), gradient, way)))
        np.testing.assert_allclose(slope, (loss(ahead) - loss(behind)) / 2e-5, rtol=1e-3, atol=1e-4)
    before = variables["batch_stats"]["projector"]["bn"]["mean"]
    after = changed["batch_stats"]["projector"]["bn"]["mean"]
    first, second = (by_hand(start, images)[2] for images in views)
    np.testing.assert_allclose(after, 0.9 * (0.9 * before + 0.1 * first) + 0.1 * second, rtol=1e-4, atol=1e-6)
