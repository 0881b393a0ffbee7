"""Names are short, and as different as what they name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.report.naming import LONGEST_NAME, short_names

KEYS = ("rounds", "data.name", "method.mu", "model.name")
SETTINGS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from("123ab"))
RUNS = st.lists(st.tuples(st.sampled_from(["fedavg", "hfedf"]), SETTINGS), min_size=1, max_size=8)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=200)
@given(RUNS)
def test_runs_have_the_same_name_if_and_only_if_they_are_the_same(runs: list[tuple[str, dict[str, str]]]) -> None:
    names = short_names(runs)
    for one, name in zip(runs, names, strict=True):
        assert name.startswith(one[0])
        assert len(name) <= LONGEST_NAME
        for other, its in zip(runs, names, strict=True):
            assert (name == its) == (one == other)


def test_the_fewest_keys_are_named_and_words_before_numbers() -> None:
    settings_ = [
        {"data.image_size": "32", "data.augmentation": "none"},
        {"data.image_size": "64", "data.augmentation": "domainbed"},
    ]
    assert short_names([("fedavg", one) for one in settings_]) == [
        "fedavg, augmentation none",
        "fedavg, augmentation domainbed",
    ]
    assert short_names([("fedavg", settings_[0]), ("hfedf", settings_[1])]) == ["fedavg", "hfedf"]
    long = [("fedavg", {"model.pretrained": "x" * 60}), ("fedavg", {"model.pretrained": "y" * 60})]
    assert short_names(long) == ["fedavg 1", "fedavg 2"]


def test_a_long_number_is_short_where_it_still_tells_runs_apart() -> None:
    def named(*rates: str) -> list[str]:
        return short_names([("fedprox", {"method.mu": rate}) for rate in rates])

    assert named("0.01", "0.017826497151386938") == ["fedprox, mu 0.01", "fedprox, mu 0.0178"]
    assert named("0.017826497151386938", "0.017826497151386940") == ["fedprox 1", "fedprox 2"]
