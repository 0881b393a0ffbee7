"""Which differences of the table of every method stay when all its comparisons are counted."""

from hypothesis import given
from hypothesis import strategies as st

from fdgjax.evaluation.statistics import Difference
from launch.every_method import corrected, is_beyond


@given(st.floats(-1, 1), st.floats(1e-4, 1), st.integers(1, 30), st.integers(1, 200))
def test_a_single_comparison_is_that_of_the_interval_and_more_are_harder(
    mean: float, error: float, freedom: int, number: int
) -> None:
    difference = Difference(mean, error, freedom, 0, 0)
    assert is_beyond(difference, 1) is (difference.words in ("ahead", "behind"))
    assert is_beyond(difference, 1) or not is_beyond(difference, number)


def test_without_an_error_nothing_is_settled() -> None:
    assert not is_beyond(Difference(0.5, 0.0, 8, 12, 12), 1)
    assert not is_beyond(Difference(0.5, 0.1, 0, 4, 4), 1)


def test_all_comparisons_of_all_data_sets_are_counted() -> None:
    seeds = {("a", seed): 0.5 + 0.001 * seed for seed in range(4)}
    above = {pair: value + 0.2 + 0.0001 * pair[1] for pair, value in seeds.items()}
    below = {pair: value - 0.2 - 0.0001 * pair[1] for pair, value in seeds.items()}
    figures = {"id": {"fedavg": seeds, "fish": above}, "ood": {"fedavg": seeds, "fish": below, "irm": dict(seeds)}}
    first, *lines = corrected({"pacs": figures})
    assert first == "- Of all 3 comparisons, each tested at 0.05 / 3 (Bonferroni), these stay:"
    assert lines == ["  - PACS, id: ahead `fish`; behind none.", "  - PACS, ood: ahead none; behind `fish`."]
