"""Adaptation of any method's model to unlabelled samples: formulas against plain NumPy, scopes against one batch after
the other, and what each kind leaves alone."""

import functools
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Batch, Context, Model, Unlabelled, Variables
from fdgjax.data.federation import Federation, Rows
from fdgjax.engine.local import LocalData, samples_of
from fdgjax.engine.loops import dynamic_loop, masked_loop
from fdgjax.evaluation.adaptation import adapt, count_adapted
from fdgjax.methods.parts.adaptations import SCOPES, AdaptationConfig, adaptation_of, class_directions
from fdgjax.models.client_model import as_model
from fdgjax.objectives import replaced_statistics
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten, unflatten
from tests.toy_models import IMAGE, DenseNet, NormNet, SilentNet
from tests.toys import close, toy_federation

UNSEEN = 10
FITTING = {
    "statistics": AdaptationConfig(kind="statistics"),
    "tent": AdaptationConfig(kind="tent", epochs=2, learning_rate=0.01),
    "shot": AdaptationConfig(kind="shot", epochs=2, learning_rate=0.05),
    "t3a": AdaptationConfig(kind="t3a", support=3),
}


@functools.cache
def model() -> Model:
    return as_model(NormNet(), IMAGE)


@functools.cache
def trained() -> Variables:
    """Variables whose statistics are not those of any data here."""
    fresh = model().init(jax.random.key(0))
    return {**fresh, "batch_stats": jax.tree.map(lambda leaf: leaf * 1.5 + 0.3, fresh["batch_stats"])}


def domain() -> tuple[Federation, Rows]:
    federation = toy_federation(unseen=UNSEEN)
    return federation, jax.tree.map(lambda leaf: leaf[0], federation.target)


def images() -> np.ndarray:
    federation, rows = domain()
    return np.asarray(federation.inputs, np.float64)[np.asarray(rows.places)] / 127.5 - 1


@functools.cache
def runner(how: AdaptationConfig, batch_size: int = 4, whole: bool = False) -> Any:
    chosen = adaptation_of(model(), how, None)
    assert chosen is not None
    loop = masked_loop if whole else dynamic_loop
    return jax.jit(
        lambda v, rows, federation: adapt(
            chosen,
            v,
            rows,
            federation=federation,
            batch_size=batch_size,
            round_=jnp.int32(1),
            key=jax.random.key(1),
            repeat=loop,
        )
    )


def adapted(how: AdaptationConfig, batch_size: int = 4) -> Variables:
    federation, rows = domain()
    return runner(how, batch_size)(trained(), rows, federation)


def first_layer(variables: Variables) -> np.ndarray:
    layer = {name: np.asarray(leaf, np.float64) for name, leaf in variables["params"]["linear_1"].items()}
    return images().reshape(UNSEEN, -1) @ layer["kernel"] + layer["bias"]


def through(variables: Variables, mean: np.ndarray, var: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features and logits in float64, normalised by given statistics."""
    flat = {path: np.asarray(leaf, np.float64) for path, leaf in flatten(variables["params"]).items()}
    normal = (first_layer(variables) - mean) / np.sqrt(var + 1e-5) * flat["norm/scale"] + flat["norm/bias"]
    features = np.maximum(normal, 0)
    return features, features @ flat["linear_2/kernel"] + flat["linear_2/bias"]


def entropies(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return -(p * np.log(p)).sum(1)


@pytest.mark.slow
def test_statistics_of_one_batch_are_those_of_its_samples() -> None:
    after, values = adapted(FITTING["statistics"], UNSEEN), first_layer(trained())
    np.testing.assert_allclose(after["batch_stats"]["norm"]["mean"], values.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after["batch_stats"]["norm"]["var"], values.var(0), rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_equal(after["params"], trained()["params"])


@pytest.mark.slow
def test_statistics_of_full_batches_are_averaged_and_mixed_with_those_of_training() -> None:
    values, was = first_layer(trained()), trained()["batch_stats"]["norm"]["mean"]
    after = adapted(AdaptationConfig(kind="statistics", source_share=0.25), 5)
    np.testing.assert_allclose(
        after["batch_stats"]["norm"]["mean"], 0.25 * was + 0.75 * values.mean(0), rtol=1e-4, atol=1e-5
    )
    close(adapted(AdaptationConfig(kind="statistics", source_share=1.0)), trained())


class PartlyFrozen(nn.Module):
    """A network of which one BatchNorm layer is as evaluation has it, also in training."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        return NormNet(name="rest")(nn.BatchNorm(use_running_average=True, name="fixed")(x), train=train)


class Dropped(nn.Module):
    """`NormNet` on samples of which dropout has left out some places."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        return NormNet(name="rest")(nn.Dropout(0.5, name="dropout")(inputs=x, deterministic=not train), train=train)


@pytest.mark.slow
def test_statistics_are_those_of_samples_without_dropout() -> None:
    variables = {name: {"rest": leaf} for name, leaf in trained().items()}
    objective, context = replaced_statistics(as_model(Dropped(), IMAGE)), Context((), (), variables, jnp.int32(1))
    batch = Batch(jnp.asarray(images(), jnp.float32), jnp.zeros(UNSEEN, jnp.int32), jnp.ones(UNSEEN))
    _, changed = objective({**variables, "seen": jnp.float32(0)}, batch, jax.random.key(0), context)
    found, values = changed["batch_stats"]["rest"]["norm"], first_layer(trained())
    np.testing.assert_allclose(found["mean"], values.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["var"], values.var(0), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_statistics_that_no_pass_changes_stay() -> None:
    frozen = as_model(PartlyFrozen(), IMAGE)
    variables, objective = frozen.init(jax.random.key(0)), replaced_statistics(frozen)
    batch = Batch(jnp.asarray(images(), jnp.float32), jnp.zeros(UNSEEN, jnp.int32), jnp.ones(UNSEEN))
    context = Context((), (), variables, jnp.int32(1))
    _, changed = objective({**variables, "seen": jnp.float32(0)}, batch, jax.random.key(0), context)
    before, after = variables["batch_stats"], changed["batch_stats"]
    chex.assert_trees_all_equal(after["fixed"], before["fixed"])
    chex.assert_tree_all_finite(after)
    assert not np.allclose(after["rest"]["norm"]["mean"], before["rest"]["norm"]["mean"])


@pytest.mark.slow
def test_tents_first_step_goes_down_the_entropy_of_batch_normalised_predictions() -> None:
    rate, step = 0.01, 1e-5
    after = adapted(AdaptationConfig(kind="tent", learning_rate=rate), UNSEEN)
    values = first_layer(trained())
    for name in ("scale", "bias"):
        start = np.asarray(trained()["params"]["norm"][name], np.float64)
        for place, now in enumerate(np.asarray(after["params"]["norm"][name])):
            both = []
            for sign in (-1, 1):
                moved = start.copy()
                moved[place] += sign * step
                norm = {**trained()["params"]["norm"], name: moved}
                bent = {**trained(), "params": {**trained()["params"], "norm": norm}}
                both.append(entropies(through(bent, values.mean(0), values.var(0))[1]).mean())
            slope = (both[1] - both[0]) / (2 * step)
            wanted = -rate * np.sign(slope) if abs(slope) > 1e-6 else 0
            np.testing.assert_allclose(now - start[place], wanted, atol=rate / 20)


@pytest.mark.slow
def test_tent_without_a_step_is_statistics_and_changes_nothing_else() -> None:
    before, after = trained(), adapted(FITTING["tent"])
    close(adapted(AdaptationConfig(kind="tent", learning_rate=1e-30)), adapted(FITTING["statistics"]))
    for path, leaf in flatten(before["params"]).items():
        assert np.array_equal(leaf, flatten(after["params"])[path]) == (not path.startswith("norm/")), path


@pytest.mark.slow
def test_shot_leaves_the_last_layer_and_makes_certain_and_diverse_predictions() -> None:
    def worth(variables: Variables) -> float:
        output, _ = model().apply(variables, jnp.asarray(images(), jnp.float32), True, jax.random.key(0))
        p = np.asarray(jax.nn.softmax(output.logits), np.float64)
        return float(-(p * np.log(p)).sum(1).mean() + (p.mean(0) * np.log(p.mean(0))).sum())

    after = adapted(AdaptationConfig(kind="shot", epochs=20, learning_rate=0.05, pseudo_label_weight=0.0))
    chex.assert_trees_all_equal(after["params"]["linear_2"], trained()["params"]["linear_2"])
    assert not np.allclose(after["params"]["linear_1"]["kernel"], trained()["params"]["linear_1"]["kernel"])
    assert worth(after) < worth(trained())


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(0, 4))
@settings(max_examples=20)
def test_t3as_directions_are_those_of_its_published_loop(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    features, logits = rng.normal(size=(12, 5)), rng.normal(size=(12, 3))
    mask = rng.integers(0, 2, 12).astype(float)
    wanted = np.zeros((5, 3))
    for label in range(3):
        own = [i for i in range(12) if mask[i] and logits[i].argmax() == label]
        own = sorted(own, key=lambda i: entropies(logits)[i])[: most or None]
        total = sum((features[i] / np.linalg.norm(features[i]) for i in own), np.zeros(5))
        wanted[:, label] = total / (np.linalg.norm(total) or 1)
    got = class_directions(jnp.float32(features), jnp.float32(logits), jnp.float32(mask), most)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.slow
def test_t3a_replaces_the_last_layer_by_directions_of_columns_and_features() -> None:
    after, stats = adapted(FITTING["t3a"]), trained()["batch_stats"]["norm"]
    features, logits = through(trained(), np.asarray(stats["mean"]), np.asarray(stats["var"]))
    last = {name: np.asarray(leaf, np.float64) for name, leaf in trained()["params"]["linear_2"].items()}
    supports = np.concatenate([last["kernel"].T, features])
    judged = np.concatenate([last["kernel"].T @ last["kernel"] + last["bias"], logits])
    wanted = class_directions(jnp.float32(supports), jnp.float32(judged), jnp.ones(len(judged)), 3)
    np.testing.assert_allclose(after["params"]["linear_2"]["kernel"], wanted, atol=1e-5)
    assert not np.any(after["params"]["linear_2"]["bias"])
    chex.assert_trees_all_equal(after["params"]["linear_1"], trained()["params"]["linear_1"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", FITTING)
def test_no_label_is_seen_and_padding_is_no_sample(kind: str) -> None:
    federation, rows = domain()
    expected = adapted(FITTING[kind])
    run = runner(FITTING[kind])
    relabelled = federation._replace(labels=(federation.labels + 1) % 3)
    chex.assert_trees_all_equal(run(trained(), rows, relabelled), expected)
    # The order of an epoch is drawn among all places.
    if kind == "t3a":
        every = AdaptationConfig(kind="t3a", support=UNSEEN)
        padded = Rows(jnp.tile(rows.places, 2), rows.length)
        close(runner(every)(trained(), padded, federation), adapted(every))
    close(runner(FITTING[kind], whole=True)(trained(), rows, federation), expected)


def test_an_adaptation_that_asks_for_labels_gets_zeros() -> None:
    federation, rows = domain()
    assert np.asarray(federation.labels)[np.asarray(rows.places)].any()
    found = adapt(
        lambda variables, given: {"labels": given.samples.each(lambda batch: batch.labels)},
        {},
        rows,
        federation=federation,
        batch_size=4,
        round_=jnp.int32(1),
        key=jax.random.key(1),
        repeat=dynamic_loop,
    )
    assert not np.any(found["labels"])


@pytest.mark.slow
def test_padding_does_not_move_the_centroids_that_label_for_shot() -> None:
    federation, rows = domain()
    shot: Any = adaptation_of(model(), FITTING["shot"], None)
    logits = model().apply(trained(), jnp.asarray(images(), jnp.float32), False, jax.random.key(0))[0].logits
    flat = flatten(trained())
    # Then all classes are predicted.
    centred = unflatten(flat | {"params/linear_2/bias": flat["params/linear_2/bias"] - logits.mean(axis=0)})

    @jax.jit
    def labels(places: jax.Array) -> jax.Array:
        samples = samples_of(LocalData(federation, places, jnp.int32(5)), len(places))
        return shot(centred, Unlabelled(samples, lambda *fitted: fitted[-1])).labels[:5]

    for seed in range(20):
        places = jax.random.permutation(jax.random.key(seed), rows.places)
        np.testing.assert_array_equal(labels(places[:9]), labels(places[:5]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batch", "stream"])
def test_a_batched_scope_adapts_to_one_batch_after_the_other(name: str) -> None:
    federation, rows = domain()
    run = runner(FITTING["tent"])
    scales = lambda variables, rows: variables["params"]["norm"]["scale"] * rows.length.astype(jnp.float32)  # noqa: E731

    def whole(federation: Federation) -> jax.Array:
        return count_adapted(
            lambda v, rows: run(v, rows, federation),
            scales,
            trained(),
            rows,
            SCOPES[name],
            batch_size=4,
            repeat=dynamic_loop,
        )

    latest, total = trained(), 0
    for start in range(0, UNSEEN, 4):
        size = min(4, UNSEEN - start)
        places = np.resize(np.asarray(rows.places), start + 4)[start:]
        batch = Rows(jnp.asarray(places), jnp.int32(size))
        latest = run(latest if name == "stream" else trained(), batch, federation)
        total = total + scales(latest, batch)
    close(jax.jit(whole)(federation), total)


@pytest.mark.slow
def test_of_a_domain_in_one_batch_every_scope_makes_the_same() -> None:
    federation, rows = domain()
    run = runner(FITTING["statistics"], UNSEEN)
    means = lambda variables, rows: variables["batch_stats"]  # noqa: E731
    found = [
        count_adapted(
            lambda v, rows: run(v, rows, federation),
            means,
            trained(),
            rows,
            scope,
            batch_size=UNSEEN,
            repeat=dynamic_loop,
        )
        for scope in SCOPES.values()
    ]
    for other in found[1:]:
        close(other, found[0])


@pytest.mark.parametrize(
    ("network", "how", "words"),
    [
        (DenseNet(), AdaptationConfig(kind="tent"), "BatchNorm"),
        (DenseNet(), AdaptationConfig(kind="statistics"), "BatchNorm"),
        (NormNet(), AdaptationConfig(kind="t3a", scope="stream"), "expected domain or batch"),
    ],
)
def test_what_cannot_be_adapted_is_refused_in_one_line(network: Any, how: AdaptationConfig, words: str) -> None:
    with pytest.raises(UserError, match=words):
        adaptation_of(as_model(network, IMAGE), how, None)


def test_a_network_whose_features_are_not_the_last_layers_input_is_refused() -> None:
    silent = as_model(SilentNet(), IMAGE)
    federation, rows = domain()
    chosen = adaptation_of(silent, FITTING["t3a"], None)
    assert chosen is not None
    how = {"batch_size": 4, "round_": jnp.int32(1), "key": jax.random.key(1), "repeat": dynamic_loop}
    with pytest.raises(UserError, match="features, and these are 0"):
        jax.eval_shape(lambda v: adapt(chosen, v, rows, federation=federation, **how), silent.init(jax.random.key(0)))
