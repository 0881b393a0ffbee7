"""A data set of arrays: what is none is one line, and its name says what is in it."""

from typing import Any

import numpy as np
import pytest

from fdgjax.data.sources.arrays import arrays_name, domains_of
from fdgjax.utils.errors import UserError

X, Y = np.random.default_rng(0).integers(0, 256, (20, 4, 3, 1), np.uint8), np.arange(20) % 3
"""Twenty images of 4x3 pixels, of three classes."""


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"a": (X, Y)}, "data got 1 domain"),
        ([(X, Y), (X, Y)], "data got list; expected at least two domains, a dict"),
        ({"a": (X, Y), "b": X}, r"data\['b'\] got ndarray; expected a pair"),
        ({"a": (X, Y, Y), "b": (X, Y)}, r"data\['b'\] has no groups, and data\['a'\] has"),
        ({"a": (X, Y, Y), "b": (X, Y, Y[:5])}, r"data\['b'\] has groups \[5\] for 20 samples"),
        ({"a": (X, Y, Y), "b": (X, Y, Y / 2)}, "groups of float64, such as .*; expected a word or a whole number"),
        ({"a": {"inputs": X}, "b": (X, Y)}, r"data\['a'\] has the arrays inputs; expected inputs and labels, perhaps"),
        ({"a": {"inputs": X, "labels": Y, "split": Y}, "b": (X, Y)}, "has the arrays inputs, labels, split; expected"),
        ({"a": (X, Y, None, ["train"] * 20), "b": (X, Y)}, r"data\['b'\] has no splits, and data\['a'\] has"),
        ({"a": (X, Y, None, ["fit"] * 20), "b": (X, Y, None, ["train"] * 20)}, "the split 'fit'; expected train, val"),
        ({"a": (X, Y, None, [0.5] * 20), "b": (X, Y, None, ["train"] * 20)}, "splits of float64, such as .*0.5"),
        ({"a": (X, Y), 3: (X, Y)}, "a domain called 3; expected a word"),
        (
            {"a": (X, Y), "b": (X / 255, Y)},
            "float32 and data.*uint8; expected images .uint8. or numbers for all; of",
        ),
        ({"a": (X, Y), "b": (X[..., 0], Y)}, r"of grey images \[n, H, W\] make images\[..., None\]"),
        ({"a": (X, Y), "b": (np.zeros((20, 3, 8, 6), np.uint8), Y)}, r"\[20, 3, 8, 6\].* make np\.transpose\(images"),
        ({"a": (X, Y), "b": (X[:0], Y[:0])}, r"images \[0, 4, 3, 1\]"),
        ({"a": (X, Y), "b": (np.ma.masked_equal(X, X[0, 0, 0, 0]), Y)}, r"data\['b'\] has a masked array with masked"),
        ({"a": (X, Y), "b": (X, Y[:5])}, r"labels \[5\] for 20 samples"),
        ({"a": (X, Y), "b": (X, Y / 2)}, "labels of float64; expected whole numbers"),
        ({"a": (X, Y), "b": (X, Y.astype(str))}, "labels of <U21, such as .*; expected whole numbers .* np.unique"),
        ({"a": (X, Y), "b": (X, Y - 1)}, "labels of int64 from -1 to 1; expected whole numbers from 0"),
        ({"a": (X, Y), "b": (X[:, :2], Y)}, r"data\['b'\] has images of \[2, 3, 1\] and data\['a'\] of \[4, 3, 1\]"),
        ({"a": (X, Y + 7), "b": (X, Y)}, "the label 9, but 9 classes"),
        ({"a": (X, Y), "b": (X, Y + 2**32)}, "labels of int64 from 4294967296 to"),
        (
            {"a": (X, Y + 1e9), "b": (X, Y + 1e9)},
            "the label of data has numbers such as 1000000000 with a deviation of 0.8.*; subtract a constant",
        ),
        ({"a": (X, Y + 0.5), "b": (X, Y * 1e300)}, r"data\['b'\] has labels that are not finite"),
    ],
)
def test_arrays_that_are_no_data_set_are_one_line(data: Any, said: str) -> None:
    classes = tuple("abcdefghi") if said.startswith("the label") else None
    with pytest.raises(UserError, match=said):
        domains_of(data, classes)


@pytest.mark.parametrize(("constant", "kept"), [(1000, True), (-3000, True), (1e5, False), (-1e6, False)])
def test_labels_keep_their_spread_or_are_refused(constant: float, kept: bool) -> None:
    """The distances of float32's numbers are 6e-5 at 1000 and 8e-3 at 1e5."""
    noise = np.random.default_rng(0).normal(size=(2, 20))
    data = {"a": (X, constant + noise[0]), "b": (X, constant + noise[1])}
    if not kept:
        with pytest.raises(UserError, match="float32 rounds them"):
            domains_of(data)
        return
    back = domains_of(data).labels.astype(np.float64) - constant
    np.testing.assert_allclose(back, noise.ravel(), rtol=0, atol=1e-3 * noise.std())


def test_numbers_that_are_no_classes_are_refused_before_each_gets_a_name() -> None:
    with pytest.raises(UserError, match=r"data has labels up to 1700000002, each of which would be a class; .* floats"):
        domains_of({"a": (X, Y + 1_700_000_000), "b": (X, Y)})


def test_a_class_without_a_sample_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert domains_of({"a": (X, Y % 2 + 1), "b": (X, Y % 2 + 1)}).class_names == ("0", "1", "2")
    assert "no sample of 0 in any domain of the data" in caplog.text


def test_a_word_is_no_list_of_classes() -> None:
    with pytest.raises(UserError, match="a single word; expected a list of names"):
        domains_of({"a": (X, Y % 2), "b": (X, Y % 2)}, "ab")


def test_groups_of_two_domains_are_never_the_same() -> None:
    words = np.array(list("pq") * 10)
    found = domains_of({"a": (X, Y, words), "b": (X, Y, words[::-1])}).groups
    assert found is not None
    assert [len(np.unique(own)) for own in (found[:20], found[20:], found)] == [2, 2, 4]
    np.testing.assert_array_equal(found[:20:2], found[0])


def test_the_name_of_arrays_changes_with_all_of_them() -> None:
    first: dict[str, Any] = {"one": (X, Y), "two": (X[::-1], Y)}
    turned, other = dict(reversed(first.items())), first | {"one": (X, np.roll(Y, 1))}
    assert arrays_name(domains_of(first)) == arrays_name(domains_of({"one": (X.copy(), Y), "two": (X[::-1], Y)}))
    grouped = {name: (*pair, Y) for name, pair in first.items()}
    split = {name: (*pair, None, ["train"] * 20) for name, pair in first.items()}
    given = (
        grouped,
        grouped | {"two": (X[::-1], Y, Y[::-1])},
        split,
        split | {"two": (X[::-1], Y, None, ["val"] * 20)},
    )
    named = (first, turned, other, first | {"two": (X, Y)}, *given)
    assert len({arrays_name(domains_of(data)) for data in named} | {arrays_name(domains_of(first, tuple("abc")))}) == 9
