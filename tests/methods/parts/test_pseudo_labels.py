"""Pseudo-labels: the official code's, a float64 reference, and what must not matter."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.methods.parts.pseudo_labels import PseudoLabels, argmax_labels, centroid_labels

LAW = settings(derandomize=True, deadline=None, max_examples=25)
N, M, CLASSES = 12, 3, 4
SEEDS = st.integers(0, 999)
LABELS = jax.jit(centroid_labels, static_argnames=("threshold", "passes"))


def data_of(seed: int, n: int = N) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, M)).astype(np.float32), rng.normal(size=(n, CLASSES)).astype(np.float32)


def probabilities_of(logits: Any) -> Any:
    exponentials = np.exp(np.float64(logits))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def loop_labels(features: Any, logits: Any, threshold: int, passes: int) -> tuple[Any, float]:
    """The labels, and by how much the nearest centroid was nearer than the next at the closest decision."""
    z = np.array([np.append(row, 1) / np.linalg.norm(np.append(row, 1)) for row in np.asarray(features, np.float64)])
    assignment, margin = probabilities_of(logits), np.inf
    counts = [np.sum(assignment.argmax(axis=1) == k) for k in range(CLASSES)]
    allowed = [k for k in range(CLASSES) if counts[k] > threshold] or [k for k in range(CLASSES) if counts[k]]
    labels = np.zeros(len(z), int)
    for _ in range(passes):
        cosines = np.full((len(z), CLASSES), -2.0)
        for k in allowed:
            if assignment[:, k].sum() > 0:
                centroid = sum(w * row for w, row in zip(assignment[:, k], z, strict=True)) / assignment[:, k].sum()
                cosines[:, k] = z @ centroid / np.linalg.norm(centroid)
        labels = cosines.argmax(axis=1)
        best = np.sort(cosines, axis=1)
        margin = min(margin, np.min(best[:, -1] - best[:, -2]))
        assignment = np.eye(CLASSES)[labels]
    return labels, margin


@pytest.mark.parametrize("case", range(3))
def test_the_official_codes_labels(case: int, conformance: Path) -> None:
    data = np.load(conformance / "uap_pseudo_labels.npz")
    features, logits = data[f"features_{case}"], data[f"logits_{case}"]
    guess = LABELS(features, logits, threshold=int(data[f"threshold_{case}"]))
    np.testing.assert_array_equal(guess.labels, data[f"pseudo_labels_{case}"])


@pytest.mark.slow
@LAW
@given(seed=SEEDS, case=st.sampled_from([(0, 2), (2, 2), (2, 3), (4, 1), (N, 2)]))
def test_the_definition(seed: int, case: tuple[int, int]) -> None:
    threshold, passes = case
    features, logits = data_of(seed)
    guess = LABELS(features, logits, threshold=threshold, passes=passes)
    expected, margin = loop_labels(features, logits, threshold, passes)
    if margin > 1e-5:
        np.testing.assert_array_equal(guess.labels, expected)
    np.testing.assert_allclose(guess.confidence, probabilities_of(logits)[np.arange(N), guess.labels], rtol=1e-5)
    assert guess.labels.dtype == np.int32


@pytest.mark.slow
@LAW
@given(seed=SEEDS, junk=st.sampled_from([0.0, 1e4, np.inf, np.nan]))
def test_neither_order_nor_padding_matters(seed: int, junk: float) -> None:
    features, logits = data_of(seed)
    _, margin = loop_labels(features, logits, 1, 2)
    order = np.random.default_rng(seed).permutation(N + 3)
    padded = [np.concatenate([one, np.full((3, one.shape[1]), junk, np.float32)])[order] for one in (features, logits)]
    guess = LABELS(*padded, (np.arange(N + 3) < N)[order].astype(np.float32), threshold=1)
    back = np.argsort(order)[:N]
    alone = LABELS(features, logits, np.ones(N, np.float32), threshold=1)
    if margin > 1e-5:
        np.testing.assert_array_equal(guess.labels[back], alone.labels)
        np.testing.assert_allclose(guess.confidence[back], alone.confidence, rtol=1e-5)


@pytest.mark.slow
def test_a_class_with_too_few_predictions_is_given_to_nobody() -> None:
    features, logits = data_of(1)
    counts = np.bincount(logits.argmax(axis=1), minlength=CLASSES)
    rarest = counts.argmin()
    assert counts[rarest] < counts.max(), "the test wants a class to drop"
    guess = LABELS(features, logits, threshold=int(counts[rarest]))
    assert not np.any(guess.labels == rarest)
    # One prediction more than the threshold is enough to take part.
    kept = loop_labels(features, logits, int(counts[rarest]) - 1, 2)[0]
    np.testing.assert_array_equal(LABELS(features, logits, threshold=int(counts[rarest]) - 1).labels, kept)


@pytest.mark.parametrize("seed", [448, 554, 689])
def test_a_class_left_without_samples_gets_none_in_the_next_pass(seed: int) -> None:
    """A centroid of nothing would be at right angles to all samples, nearer than those behind them."""
    features, logits = data_of(seed)
    features = 3 * features
    # Padding is as near to every centroid, and goes to the first class: the one that is left.
    padded = [np.concatenate([one, np.zeros((2, one.shape[1]), np.float32)]) for one in (features, logits)]
    mask = np.float32(np.arange(N + 2) < N)
    assert np.any(logits.argmax(axis=1) == 0)
    assert not np.any(LABELS(*padded, mask, passes=1).labels[:N] == 0), "the test wants a class to be left"
    np.testing.assert_array_equal(LABELS(*padded, mask, passes=2).labels[:N], loop_labels(features, logits, 0, 2)[0])


def test_where_every_class_is_dropped_all_predicted_ones_take_part() -> None:
    features, logits = data_of(2)
    logits[:, 3] = -9
    guess = LABELS(features, logits, threshold=N)
    np.testing.assert_array_equal(guess.labels, LABELS(features, logits, threshold=0).labels)
    assert not np.any(guess.labels == 3)


@pytest.mark.parametrize("empty", ["no sample", "zero features", "one sample"])
def test_degenerate_data_is_labelled_without_nan(empty: str) -> None:
    features, logits = data_of(3)
    mask = np.ones(N, np.float32)
    if empty == "no sample":
        mask[:] = 0
    elif empty == "one sample":
        mask[1:] = 0
    else:
        features[:] = 0
    guess = LABELS(features, logits, mask)
    assert np.all((guess.labels >= 0) & (guess.labels < CLASSES))
    assert np.isfinite(guess.confidence).all()
    if empty == "one sample":
        assert guess.labels[0] == logits[0].argmax()


@pytest.mark.slow
def test_clients_as_an_axis_change_nothing() -> None:
    clients = [data_of(seed) for seed in range(3)]
    stacked = [np.stack(leaves) for leaves in zip(*clients, strict=True)]
    together: PseudoLabels = jax.vmap(lambda features, logits: LABELS(features, logits))(*stacked)
    for i, client in enumerate(clients):
        np.testing.assert_array_equal(together.labels[i], LABELS(*client).labels)


@pytest.mark.slow
def test_good_features_mend_bad_predictions() -> None:
    """Three samples of a tight cluster are predicted to be of the other one; their neighbours decide."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 10)
    features = (np.eye(2)[truth] * 4 - 2 + 0.1 * rng.normal(size=(20, 2))).astype(np.float32)
    predicted = np.where(np.isin(np.arange(20), [0, 1, 12]), 1 - truth, truth)
    logits = np.eye(2, dtype=np.float32)[predicted] * 2
    np.testing.assert_array_equal(argmax_labels(jnp.asarray(logits)).labels, predicted)
    guess = LABELS(features, logits)
    np.testing.assert_array_equal(guess.labels, truth)
    assert np.all((guess.confidence < 0.5) == (predicted != truth))


def test_argmax_is_the_most_probable_class() -> None:
    _, logits = data_of(4)
    guess = argmax_labels(logits)
    np.testing.assert_array_equal(guess.labels, logits.argmax(axis=1))
    np.testing.assert_allclose(guess.confidence, probabilities_of(logits).max(axis=1), rtol=1e-5)
    assert guess.labels.dtype == np.int32
