"""FDSE's consistency loss by its equations, in NumPy."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Batch, Context
from fdgjax.objectives import consistency_loss, consistent, cross_entropy, statistics_only
from fdgjax.objectives.consistency import CARRIED, by_fixed_statistics, official_term, squared_distance
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten, unflatten
from tests.toy_models import IMAGE, tiny_model
from tests.toys import by_numpy, flat

LAW = settings(derandomize=True, deadline=None, max_examples=15)
LAYERS = ("first/bn_dfe", "second/bn_dfe", "third/bn_dfe")


def statistics(rng: np.random.Generator) -> dict:
    """Running statistics of three layers of different sizes, and of one that is none of FDSE's."""
    sizes = dict(zip((*LAYERS, "other/bn"), (3, 5, 4, 2), strict=True))
    tree: dict = {}
    for path, size in sizes.items():
        module, norm = path.split("/")
        tree[module] = {
            norm: {
                "mean": jnp.asarray(rng.normal(size=size), jnp.float32),
                "var": jnp.asarray(rng.uniform(0.1, 3, size), jnp.float32),
            }
        }
    return {"batch_stats": tree}


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 999), beta=st.sampled_from([0.001, 0.5, 2.0]))
def test_equations_6_and_7(seed: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    changed, received = statistics(rng), statistics(rng)
    terms = []
    for path in LAYERS:
        module, norm = path.split("/")
        now, then = (
            {k: np.asarray(v, np.float64) for k, v in t["batch_stats"][module][norm].items()}
            for t in (changed, received)
        )
        d = len(now["mean"])
        gap = (np.abs(now["var"]).sum() - np.abs(then["var"]).sum()) / d
        terms.append(np.sum((now["mean"] - then["mean"]) ** 2) / d + gap**2)
    weights = np.exp(beta * np.arange(1, 4))
    wanted = weights @ np.asarray(terms) / weights.sum()
    np.testing.assert_allclose(consistency_loss(changed, received, LAYERS, beta), wanted, rtol=1e-5)
    assert consistency_loss(received, received, LAYERS, beta) == 0


class Official:
    """The official code's statistics of one client, from its steps: two numbers that no layer and no batch resets."""

    def __init__(self) -> None:
        self.fn: float | None = None
        self.vn: float | None = None

    def term(self, maps: list[np.ndarray], means: list[np.ndarray], variances: list[np.ndarray], beta: float) -> float:
        weights = np.exp(beta * np.arange(len(maps)))
        loss = 0.0
        for w, f, g, v in zip(weights / weights.sum(), maps, means, variances, strict=True):
            self.fn = f.mean() if self.fn is None else 0.9 * self.fn + 0.1 * f.mean()
            self.vn = f.var(ddof=1) if self.vn is None else 0.9 * self.vn + 0.1 * f.var(ddof=1)
            loss += w * ((g**2 - self.fn**2) / (2 * self.vn)).mean()
            loss += w * 0.5 * (np.log(self.vn / (v + 1e-8)) + v / (self.vn + 1e-8)).mean()
        return loss


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 999), beta=st.sampled_from([0.001, 0.5]))
def test_the_official_term_over_three_batches(seed: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    received, official = statistics(rng), Official()
    variables, layers = received | jax.tree.map(jnp.asarray, CARRIED["official"]), flatten(received)
    names = [[f"batch_stats/{layer}/{name}" for layer in LAYERS] for name in ("mean", "var")]
    means, variances = ([np.asarray(layers[path], np.float64) for path in paths] for paths in names)
    for _ in range(3):
        maps = [rng.normal(size=len(mean)) + mean for mean in means]
        now = flatten(variables["batch_stats"])
        for layer, batch in zip(LAYERS, maps, strict=True):
            now[f"{layer}/mean"] = 0.9 * now[f"{layer}/mean"] + 0.1 * jnp.asarray(batch, jnp.float32)
        changed = {"batch_stats": unflatten(now)}
        got, carried = official_term(LAYERS, beta)(variables, changed, received)
        np.testing.assert_allclose(got, official.term(maps, means, variances, beta), rtol=1e-3, atol=1e-4)
        variables = changed | carried
    assert float(variables["carried"]["begun"]) == 1


@pytest.mark.slow
def test_the_official_gradient_is_that_of_the_batch_alone() -> None:
    """By differences of the official steps, whose carried numbers are constants of the next batch."""
    rng = np.random.default_rng(5)
    received, official = statistics(rng), Official()
    layers = flatten(received)
    means, variances = (
        [np.asarray(layers[f"batch_stats/{layer}/{name}"], np.float64) for layer in LAYERS[:1]]
        for name in ("mean", "var")
    )
    official.fn, official.vn, begun = 0.3, 0.7, {"mean": 0.3, "var": 0.7, "begun": 1.0}
    variables = received | {"carried": {name: jnp.float32(value) for name, value in begun.items()}}
    batch = np.asarray([0.5, -1.0, 0.2])

    def term(batch: jax.Array) -> jax.Array:
        changed = {"batch_stats/first/bn_dfe/mean": 0.9 * layers["batch_stats/first/bn_dfe/mean"] + 0.1 * batch}
        return official_term(LAYERS[:1], 0.1)(variables, unflatten(changed), received)[0]

    def stepped(batch: np.ndarray) -> float:
        again = Official()
        again.fn, again.vn = official.fn, official.vn
        return again.term([batch], means, variances, 0.1)

    wanted = [(stepped(batch + 1e-5 * way) - stepped(batch - 1e-5 * way)) / 2e-5 for way in np.eye(3)]
    np.testing.assert_allclose(jax.grad(term)(jnp.asarray(batch, jnp.float32)), wanted, rtol=1e-3, atol=1e-5)


def test_only_the_sizes_of_the_variances_are_compared_in_the_paper() -> None:
    zero, var = jnp.zeros(2), jnp.asarray([1.0, 3.0])
    assert squared_distance(zero, var, zero, var[::-1]) == 0


def batch_of(seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    images = jnp.asarray(rng.uniform(-1, 1, (6, *IMAGE)), jnp.float32)
    return Batch(images, jnp.asarray(rng.integers(0, 3, 6), jnp.int32), jnp.ones(6))


@pytest.mark.slow
def test_running_statistics_are_differentiated_through_the_last_batch() -> None:
    """Equation 5: the gradient of the term by a batch's mean is 1 - momentum times that by the running mean."""
    model, batch, key = tiny_model(method="fdse"), batch_of(0), jax.random.key(0)
    variables = jax.jit(model.init)(key)
    layers = ("linear_1/bn_dfe",)
    # Far from what the batch has, so that the pull is plain.
    received = variables | {"batch_stats": jax.tree.map(lambda leaf: leaf + 2, variables["batch_stats"])}
    context = Context({}, {}, received, jnp.int32(0))

    @jax.jit
    def term(params: dict) -> jax.Array:
        _, changed = statistics_only(model)({**received, "params": params}, batch, key, context)
        return consistency_loss(changed, received, layers, 0.001)

    gradient = jax.jit(jax.grad(term))(variables["params"])
    eraser = gradient["linear_1"]["dse"]["kernel"]
    assert float(np.abs(eraser).max()) > 0
    step = by_numpy(lambda w, g: w - np.float32(0.1) * g, variables["params"], gradient)
    assert term(step) < term(variables["params"])
    # Nothing behind the last statistics can matter.
    assert all(float(np.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(gradient["linear_2"]))


@pytest.mark.slow
@pytest.mark.parametrize(("round_", "applied"), [(0, False), (1, True), (2, True)])
def test_the_term_begins_with_its_round(round_: int, applied: bool) -> None:
    model, batch, key = tiny_model(method="fdse"), batch_of(1), jax.random.key(0)
    received = model.init(key)
    context = Context({}, {}, received, jnp.int32(round_))
    plain = cross_entropy(model)
    regularised = consistent(plain, ("linear_1/bn_dfe",), strength=3.0, beta=0.1, term="paper", first_round=1)
    (loss, changed), (base, _) = (f(received, batch, key, context) for f in (regularised, plain))
    wanted = base + (3 * consistency_loss(changed, received, ("linear_1/bn_dfe",), 0.1) if applied else 0)
    np.testing.assert_allclose(loss, wanted, rtol=1e-6)
    assert (loss > base) == applied


def test_an_unknown_term_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"unknown consistency 'papr'.*did you mean 'paper'"):
        consistent(cross_entropy(tiny_model()), LAYERS, strength=1.0, beta=0.1, term="papr", first_round=0)


@pytest.mark.slow
def test_fixed_layers_normalise_as_in_the_test_and_still_note_what_they_see() -> None:
    model, batch, key = tiny_model(method="fdse"), batch_of(2), jax.random.key(0)
    variables = model.init(key)
    moved = variables | {"batch_stats": jax.tree.map(lambda leaf: 1.5 * leaf + 0.3, variables["batch_stats"])}
    outcomes = {}
    for fixed in ((), ("linear_1/bn_dfe",), ("linear_1/bn_dfe", "linear_1/bn_dse")):
        with nn.intercept_methods(by_fixed_statistics(moved, fixed)):
            outcomes[len(fixed)] = model.apply(moved, batch.inputs, True, key)
    tested, _ = model.apply(moved, batch.inputs, False, key)
    np.testing.assert_allclose(outcomes[2][0].logits, tested.logits, rtol=1e-4, atol=1e-5)
    for fewer in (0, 1):
        assert not np.allclose(outcomes[fewer][0].logits, tested.logits, atol=1e-3)
    # The first layer's batch is the same in all.
    for _, changed in outcomes.values():
        chex.assert_trees_all_close(
            changed["batch_stats"]["linear_1"]["bn_dse"], outcomes[0][1]["batch_stats"]["linear_1"]["bn_dse"]
        )
        assert not np.allclose(flat(changed["batch_stats"]), flat(moved["batch_stats"]))
