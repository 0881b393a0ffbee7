"""Discrepancies of distributions against loops in float64, the official code's numbers, and the laws of an MMD."""

from itertools import combinations
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fdgjax.objectives import contrastive_domain_discrepancy, mmd, random_classes

LAW = settings(derandomize=True, deadline=None, max_examples=25)
N, N_TARGET, M, CLASSES = 7, 6, 3, 4
SEEDS = st.integers(0, 999)
MASKS = [st.lists(st.booleans(), min_size=size, max_size=size) for size in (N, N_TARGET)]
CHOSEN = st.lists(st.booleans(), min_size=CLASSES, max_size=CLASSES)
SPLITS_MMD = jax.jit(jax.vmap(mmd))
MMD = jax.jit(jax.value_and_grad(mmd, argnums=(0, 1)))


def cdd(source: Any, source_labels: Any, target: Any, target_labels: Any, masks: Any, chosen: Any) -> Any:
    return contrastive_domain_discrepancy(
        source,
        source_labels,
        target,
        target_labels,
        classes=chosen.shape[0],
        source_mask=masks[0],
        target_mask=masks[1],
        chosen=chosen,
    )


CDD = jax.jit(jax.value_and_grad(cdd, argnums=(0, 2), has_aux=True))


def loop_mmd(x: Any, y: Any) -> float:
    """The definition, in float64."""
    pooled = np.concatenate([x, y]).astype(np.float64)
    distances = [[np.sum((a - b) ** 2) for b in pooled] for a in pooled]
    g = np.sum(distances) / (len(pooled) * (len(pooled) - 1))

    def k(a: Any, b: Any) -> float:
        return sum(np.exp(-np.sum((np.float64(a) - b) ** 2) / (g * 2.0 ** (j - 2))) for j in range(5))

    def mean(first: Any, second: Any) -> float:
        return float(np.mean([[k(a, b) for b in second] for a in first]))

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def loop_cdd(source: Any, source_labels: Any, target: Any, target_labels: Any, among: Any) -> tuple[float, float]:
    groups = [(source[source_labels == k], target[target_labels == k]) for k in among]
    groups = [(s, t) for s, t in groups if len(s) and len(t)]
    same = [loop_mmd(s, t) for s, t in groups]
    other = [loop_mmd(groups[a][0], groups[b][1]) for a in range(len(groups)) for b in range(len(groups)) if a != b]
    return float(np.mean(same)) if same else 0.0, float(np.mean(other)) if other else 0.0


def two_sets(seed: int, classes: int = CLASSES, sizes: tuple[int, int] = (N, N_TARGET), m: int = M) -> Any:
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, classes, size).astype(np.int32) for size in sizes]
    features = [rng.normal(size=(size, m)).astype(np.float32) for size in sizes]
    return features[0], labels[0], features[1], labels[1]


def ones(*sizes: int) -> Any:
    return tuple(np.ones(size, np.float32) for size in sizes)


@pytest.mark.slow
@LAW
@given(seed=SEEDS, x_mask=MASKS[0], y_mask=MASKS[1])
@example(seed=0, x_mask=[False] * N, y_mask=[True] * N_TARGET)
@example(seed=0, x_mask=[True] * N, y_mask=[False] * N_TARGET)
def test_mmd_is_its_definition(seed: int, x_mask: list[bool], y_mask: list[bool]) -> None:
    x, _, y, _ = two_sets(seed)
    y = y + np.float32(1)
    value, grads = MMD(x, y, *(np.array(mask, np.float32) for mask in (x_mask, y_mask)))
    expected = loop_mmd(x[x_mask], y[y_mask]) if any(x_mask) and any(y_mask) else 0
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=5e-6)
    for grad, mask in zip(grads, (x_mask, y_mask), strict=True):
        assert np.isfinite(grad).all()
        assert not np.any(grad[~np.array(mask)])


@pytest.mark.slow
@LAW
@given(seed=SEEDS)
def test_mmd_is_symmetric_and_zero_for_identical_sets(seed: int) -> None:
    x, _, y, _ = two_sets(seed, sizes=(N, N))
    everything = ones(N, N)
    value, (by_x, by_y) = MMD(x, y, *everything)
    swapped, (by_first, by_second) = MMD(y, x, *everything)
    chex.assert_trees_all_close((value, by_x, by_y), (swapped, by_second, by_first), atol=2e-6)
    assert value > 0.01
    order = np.random.default_rng(seed).permutation(N)
    same, grads = MMD(x, x[order], *everything)
    chex.assert_trees_all_close((same, *grads), (0.0, np.zeros_like(x), np.zeros_like(x)), atol=3e-6)


@pytest.mark.slow
@LAW
@given(seed=SEEDS)
def test_mmd_of_one_distribution_has_only_the_bias_of_its_diagonals(seed: int) -> None:
    """Over all ways to split one set, whose g is the same, the mean is (1/n + 1/n')(k(0) - mean k) exactly."""
    n, total = 2, 6
    pooled = np.random.default_rng(seed).normal(size=(total, M)).astype(np.float32)
    splits = [np.array([*part, *(set(range(total)) - set(part))]) for part in combinations(range(total), n)]
    sets = pooled[np.stack(splits)]
    values = SPLITS_MMD(sets[:, :n], sets[:, n:])
    pairs = [np.sum((np.float64(a) - b) ** 2) for a, b in combinations(pooled, 2)]
    kernel = np.mean([sum(np.exp(-d / (np.mean(pairs) * 2.0 ** (j - 2))) for j in range(5)) for d in pairs])
    np.testing.assert_allclose(np.mean(values), (1 / n + 1 / (total - n)) * (5 - kernel), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(3))
def test_the_official_codes_numbers(case: int, conformance: Path) -> None:
    data = np.load(conformance / "uap_cdd.npz")
    source, target, source_counts, target_counts = (
        data[f"{name}_{case}"] for name in ("source", "target", "source_counts", "target_counts")
    )
    labels = [np.repeat(np.arange(len(counts)), counts).astype(np.int32) for counts in (source_counts, target_counts)]
    masks, chosen = ones(len(source), len(target)), np.ones(len(source_counts), bool)
    (loss, parts), (grad, _) = CDD(source, labels[0], target, labels[1], masks, chosen)
    np.testing.assert_allclose(loss, data[f"cdd_{case}"], rtol=1e-5)
    # The official code takes ratios below 1e-5 for 1e-5, on the diagonals, where ours are 0.
    np.testing.assert_allclose(parts["intra"], data[f"intra_{case}"], atol=5e-5)
    np.testing.assert_allclose(parts["inter"], data[f"inter_{case}"], atol=5e-5)
    np.testing.assert_allclose(grad, data[f"grad_source_{case}"], atol=1e-6 * np.abs(grad).max() + 1e-7)


@pytest.mark.slow
@LAW
@given(seed=SEEDS, masks=st.tuples(*MASKS), chosen=CHOSEN)
def test_contrastive_discrepancy_is_its_definition(seed: int, masks: Any, chosen: list[bool]) -> None:
    source, source_labels, target, target_labels = two_sets(seed)
    floats = tuple(np.float32(mask) for mask in masks)
    (loss, parts), grads = CDD(source, source_labels, target, target_labels, floats, np.array(chosen))
    own, others = masks
    intra, inter = loop_cdd(
        source[own], source_labels[own], target[others], target_labels[others], np.flatnonzero(chosen)
    )
    np.testing.assert_allclose([parts["intra"], parts["inter"]], [intra, inter], rtol=1e-5, atol=5e-6)
    np.testing.assert_allclose(loss, intra - inter, rtol=1e-5, atol=1e-5)
    chex.assert_tree_all_finite(grads)


@pytest.mark.slow
@LAW
@given(seed=SEEDS)
def test_source_and_target_play_one_role(seed: int) -> None:
    source, source_labels, target, target_labels = two_sets(seed)
    chosen = np.ones(CLASSES, bool)
    first = CDD(source, source_labels, target, target_labels, ones(N, N_TARGET), chosen)
    value, (by_target, by_source) = CDD(target, target_labels, source, source_labels, ones(N_TARGET, N), chosen)
    chex.assert_trees_all_close(first, (value, (by_source, by_target)), atol=5e-6)


@pytest.mark.slow
@LAW
@given(seed=SEEDS, junk=st.sampled_from([0.0, 1e3, -1e20, np.inf, np.nan]))
def test_neither_order_nor_padding_matters(seed: int, junk: float) -> None:
    source, source_labels, target, target_labels = two_sets(seed)
    chosen = np.ones(CLASSES, bool)
    (loss, parts), (by_source, by_target) = CDD(source, source_labels, target, target_labels, ones(N, N_TARGET), chosen)
    order = np.random.default_rng(seed).permutation(N + 2)
    padded = np.concatenate([source, np.full((2, M), junk, np.float32)])[order]
    labels = np.concatenate([source_labels, np.array([1, 2], np.int32)])[order]
    mask = np.concatenate([np.ones(N, np.float32), np.zeros(2, np.float32)])[order]
    again, grads = CDD(padded, labels, target, target_labels, (mask, ones(N_TARGET)[0]), chosen)
    expected = np.concatenate([by_source, np.zeros((2, M), np.float32)])[order]
    chex.assert_trees_all_close((again, grads), ((loss, parts), (expected, by_target)), atol=5e-6)


@pytest.mark.slow
def test_clients_as_an_axis_change_nothing() -> None:
    clients = [two_sets(seed) for seed in range(3)]
    masks, chosen = ones(N, N_TARGET), np.ones(CLASSES, bool)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *clients)
    together = jax.vmap(CDD, in_axes=(0, 0, 0, 0, None, None))(*stacked, masks, chosen)
    for i, client in enumerate(clients):
        chex.assert_trees_all_close(
            jax.tree.map(lambda leaf, i=i: leaf[i], together), CDD(*client, masks, chosen), atol=5e-6
        )


@pytest.mark.parametrize("scale", [0.0, 1e-25, 1e-19, 1e-12, 1.0, 1e15])
@pytest.mark.parametrize(
    "collapsed", ["one point", "a point per class", "a sample per class", "no sample", "one class"]
)
def test_degenerate_sets_have_finite_gradients(scale: float, collapsed: str) -> None:
    source, _, target, _ = two_sets(0)
    labels = [np.arange(size, dtype=np.int32) % CLASSES for size in (N, N_TARGET)]
    masks: Any = ones(N, N_TARGET)
    if collapsed == "one point":
        source, target = np.ones_like(source), np.ones_like(target)
    elif collapsed == "a point per class":
        source, target = (np.repeat(k[:, None], M, axis=1).astype(np.float32) for k in labels)
    elif collapsed == "a sample per class":
        masks = tuple(np.float32(np.arange(size) < CLASSES) for size in (N, N_TARGET))
    elif collapsed == "no sample":
        masks = tuple(np.zeros_like(mask) for mask in masks)
    else:
        labels = [np.zeros_like(k) for k in labels]
    everything = CDD(
        source * np.float32(scale), labels[0], target * np.float32(scale), labels[1], masks, np.ones(CLASSES, bool)
    )
    chex.assert_tree_all_finite(everything)
    (_, parts), _ = everything
    if collapsed in ("one point", "no sample") or scale == 0:
        chex.assert_trees_all_close(parts, {"intra": 0.0, "inter": 0.0}, atol=5e-6)
    if collapsed == "one class":
        assert parts["inter"] == 0


@pytest.mark.slow
def test_many_classes_and_features() -> None:
    """OfficeHome's 65 classes and a ResNet's 512 features: about one sample per class."""
    source, source_labels, target, _ = two_sets(0, classes=65, sizes=(64, 64), m=512)
    target = target + np.float32(0.3)
    (loss, parts), grads = CDD(source, source_labels, target, source_labels, ones(64, 64), np.ones(65, bool))
    intra, inter = loop_cdd(source, source_labels, target, source_labels, range(65))
    np.testing.assert_allclose(
        [loss, parts["intra"], parts["inter"]], [intra - inter, intra, inter], rtol=1e-5, atol=1e-5
    )
    chex.assert_tree_all_finite(grads)
    assert all(np.abs(grad).max() > 0 for grad in grads)


@LAW
@given(seed=SEEDS, present=st.lists(st.booleans(), min_size=6, max_size=6), size=st.integers(0, 7))
def test_random_classes_are_so_many_of_those_present(seed: int, present: list[bool], size: int) -> None:
    chosen = np.asarray(random_classes(jax.random.key(seed), jnp.array(present), size))
    assert not np.any(chosen & ~np.array(present))
    assert chosen.sum() == (min(size, sum(present)) if size else sum(present))


@pytest.mark.slow
def test_random_classes_are_uniform() -> None:
    present = jnp.array([True, False, True, True, True])
    keys = jax.random.split(jax.random.key(1), 4000)
    share = np.mean(jax.vmap(lambda key: random_classes(key, present, 2))(keys), axis=0)
    np.testing.assert_allclose(share, [0.5, 0, 0.5, 0.5, 0.5], atol=0.04)  # five standard deviations
