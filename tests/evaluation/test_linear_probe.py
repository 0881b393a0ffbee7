"""Linear evaluation: fair splits, and what a linear classifier can and cannot find."""

import dataclasses
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.cli.probe import show
from fdgjax.evaluation import measure_probe
from fdgjax.evaluation.linear_probe import LAYERS, Probing, grouped_split, linear_probe, random_splits
from fdgjax.models.client_model import as_model
from fdgjax.utils.errors import UserError
from tests.toy_models import CLASSES, IMAGE, SilentNet

LAW = settings(derandomize=True, deadline=None, max_examples=50)
HOW = Probing(repeats=3, epochs=60, batch_size=32, learning_rate=0.05)


@LAW
@given(counts=st.lists(st.integers(2, 30), min_size=1, max_size=5), percent=st.integers(1, 99), seed=st.integers(0, 99))
def test_every_class_has_its_share_and_no_sample_is_on_both_sides(counts: list[int], percent: int, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    (split,) = random_splits(labels, percent, 3, seed)
    for train, test in zip(split.train, split.test, strict=True):
        assert sorted([*train, *test]) == list(range(len(labels)))
        for label, count in enumerate(counts):
            taken = int((labels[train] == label).sum())
            assert 1 <= taken < count
            assert abs(taken - count * percent / 100) <= 1
    np.testing.assert_array_equal(split.train[:2], random_splits(labels, percent, 2, seed)[0].train)


def test_a_class_with_one_sample_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"class 1 has a single sample .*expected at least 2") as error:
        random_splits(np.asarray([0, 0, 1]), 10, 1, 0)
    assert "\n" not in str(error.value)


@LAW
@given(
    groups=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), min_size=6, max_size=20),
    percent=st.integers(1, 99),
    seed=st.integers(0, 99),
)
def test_a_probe_is_tested_on_groups_that_it_was_not_trained_on(
    groups: list[tuple[int, int]], percent: int, seed: int
) -> None:
    """Groups have samples of one class each; of each class there are two groups at least."""
    rng = np.random.default_rng(seed)
    own = [(size, kind if place > 5 else place % 3) for place, (size, kind) in enumerate(groups)]
    unit, labels = (np.repeat(each, [size for size, _ in own]) for each in (range(len(own)), [kind for _, kind in own]))
    order, size = rng.permutation(len(labels)), round(len(labels) * percent / 100)
    unit, labels = unit[order], labels[order]
    splits, fewer = (random_splits(labels, percent, repeats, seed, unit) for repeats in (3, 2))
    chex.assert_trees_all_equal(splits[:2], fewer)
    for train, test in (map(np.ravel, split) for split in splits):
        assert sorted([*train, *test]) == list(range(len(labels)))
        assert not set(unit[train]) & set(unit[test])
        assert set(labels[train]) == set(labels[test]) == {0, 1, 2}
        assert len(train) <= max(size, sum(sorted(np.bincount(unit))[-3:]))
        for count, kind in (own[group] for group in np.unique(unit[test])):
            last = len(np.unique(unit[test][labels[test] == kind])) == 1
            assert last or len(train) + count > size, "there was room for another group"


def test_a_class_of_one_group_is_refused_in_one_line() -> None:
    labels, groups = np.asarray([0, 0, 1, 1]), np.asarray([0, 1, 2, 2])
    with pytest.raises(UserError, match=r"class 1 has 1 group.*leave config\.data\.group out") as error:
        grouped_split(labels, 50, np.random.default_rng(0), groups)
    assert "\n" not in str(error.value)


def test_features_that_a_network_does_not_tell_are_refused_in_one_line() -> None:
    """A classifier of no numbers would have the accuracy of the most frequent class."""
    silent = as_model(SilentNet(), IMAGE)
    key, images = jax.random.key(0), jnp.zeros((2, *IMAGE))
    output, _ = silent.apply(silent.init(key), images, False, key)
    assert LAYERS["projection"](output).shape == (2, CLASSES)
    with pytest.raises(UserError, match=r"config\.probe\.layer got 'features'.*expected projection") as error:
        LAYERS["features"](output)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("words", ["", "0", "10,100", "10;30", "ten", "²"])
def test_percentages_are_whole_numbers(words: str) -> None:
    with pytest.raises(UserError, match=r"config\.probe\.percent got") as error:
        _ = Probing(percent=words).percents
    assert "\n" not in str(error.value)
    assert Probing(percent="10, 30").percents == (10, 30)


def accuracies(features: np.ndarray, labels: np.ndarray, percent: int = 30, how: Probing = HOW) -> np.ndarray:
    (split,) = random_splits(labels, percent, 3, 0)
    keys = jax.random.split(jax.random.key(0), 3)
    return np.asarray(linear_probe(keys, jnp.asarray(features), jnp.asarray(labels), *map(jnp.asarray, split), 3, how))


@pytest.mark.slow
def test_what_is_linear_is_found_whatever_its_scale_and_what_is_not_there_is_not() -> None:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(3), 120))
    noise = rng.normal(size=(360, 6)).astype(np.float32)
    told = noise + 4 * np.eye(3, 6, dtype=np.float32)[labels]
    assert accuracies(told, labels).min() > 0.9
    assert accuracies(1e3 * told + 50, labels).min() > 0.9
    assert abs(accuracies(noise, labels).mean() - 1 / 3) < 0.1


@pytest.mark.slow
def test_features_as_they_are_have_their_weight() -> None:
    """Large noise hides small features that tell the classes apart, unless all are standardised."""
    rng, raw = np.random.default_rng(0), dataclasses.replace(HOW, standardise=False)
    labels = rng.permutation(np.repeat(np.arange(3), 120))
    told = rng.normal(size=(360, 6)).astype(np.float32) + 4 * np.eye(3, 6, dtype=np.float32)[labels]
    hidden = told * np.array([0.01, 0.01, 0.01, 100, 100, 100], np.float32)
    assert accuracies(told, labels, how=raw).min() > 0.9
    assert accuracies(hidden, labels, how=raw).max() < 0.7
    assert accuracies(hidden, labels).min() > 0.9


def test_a_single_repeat_has_no_deviation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    each = np.array([[0.25, 0.75, 0.5], [0.35, 0.85, 0.6]])
    several, one = measure_probe({10: each}), measure_probe({10: each[:, :1]})
    assert several.probe_deviation == pytest.approx(0.25)
    assert several.probe_deviation_by_percent == {"10": pytest.approx(0.25)}
    assert (one.probe_accuracy, one.probe_deviation, one.probe_deviation_by_percent) == (pytest.approx(0.3), None, None)
    for metrics, shown in ((several, "0.550 ± 0.250"), (one, "0.300 ")):
        seed = {"trained": metrics.probe_by_percent, "deviation": metrics.probe_deviation_by_percent}
        untrained = {"10": 0.125}
        seed |= {"random_encoder": untrained, "pixels": untrained}
        show(tmp_path, {"layer": "features", "round": 2, "seeds": [seed]})
        printed = capsys.readouterr().out
        assert shown in printed
        assert ("±" in printed) == (metrics is several)
