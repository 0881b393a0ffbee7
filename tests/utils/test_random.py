"""Streams that depend on nothing but the seed, the purpose, the round and the client."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.utils.random import Purpose, choose_clients, draw_each, in_turn, shuffle, stream

LAW = settings(derandomize=True, deadline=None, max_examples=40)
LONGEST = 12
SHUFFLE = jax.jit(shuffle)
IN_TURN = jax.jit(in_turn)


@pytest.mark.slow
def test_no_two_streams_are_the_same() -> None:
    keys = {
        tuple(np.asarray(jax.random.key_data(stream(jnp.uint32(seed), purpose, round_, client))).tolist())
        for seed in range(3)
        for purpose in Purpose
        for round_ in range(4)
        for client in range(4)
    }
    assert len(keys) == 3 * len(Purpose) * 16


def test_purposes_have_numbers_that_never_change() -> None:
    assert [Purpose.INIT, Purpose.PARTICIPATION, Purpose.TRAINING, Purpose.SERVER] == [0, 1, 2, 3]


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 2**31), count=st.integers(0, LONGEST), extra=st.sampled_from([0, 5]))
def test_shuffle_permutes_the_valid_rows_whatever_the_padding(seed: int, count: int, extra: int) -> None:
    key, rows = jax.random.key(seed), jnp.arange(50, 50 + LONGEST)
    order = np.asarray(SHUFFLE(key, rows, count))
    assert sorted(order[:count]) == list(range(50, 50 + count))
    assert sorted(order) == list(range(50, 50 + LONGEST))
    longer = np.asarray(SHUFFLE(key, jnp.concatenate([rows, jnp.zeros(extra, rows.dtype)]), count))
    np.testing.assert_array_equal(longer[:count], order[:count])


def test_shuffle_puts_every_row_everywhere() -> None:
    orders = np.asarray(jax.vmap(lambda key: SHUFFLE(key, jnp.arange(6), 4))(jax.random.split(jax.random.key(0), 4000)))
    often = np.stack([(orders[:, :4] == row).mean(axis=0) for row in range(4)])
    np.testing.assert_allclose(often, 0.25, atol=0.04)  # 5.8 standard deviations


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 2**31), ids=st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True))
def test_draws_belong_to_ids_not_to_places(seed: int, ids: list[int]) -> None:
    key = jax.random.key(seed)
    drawn = np.asarray(draw_each(key, jnp.asarray(ids), jax.random.bits))
    assert len(set(drawn.tolist())) == len(ids)
    np.testing.assert_array_equal(draw_each(key, jnp.asarray(ids[::-1]), jax.random.bits), drawn[::-1])
    np.testing.assert_array_equal(draw_each(key, jnp.asarray(ids[:1]), jax.random.bits), drawn[:1])


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 2**31), many=st.integers(1, 6), order=st.permutations(range(6)))
def test_those_chosen_differ_and_are_chosen_by_id(seed: int, many: int, order: list[int]) -> None:
    ids, key = jnp.asarray([3, 14, 15, 92, 65, 35]), jax.random.key(seed)
    places = np.asarray(choose_clients(key, ids, many))
    assert len(set(places.tolist())) == many
    assert places.tolist() == sorted(places.tolist())
    again = choose_clients(key, ids[jnp.asarray(order)], many)
    chosen = set(np.asarray(ids)[places].tolist())
    assert set(np.asarray(ids)[np.asarray(order)][np.asarray(again)].tolist()) == chosen


@pytest.mark.slow
def test_everybody_is_chosen_equally_often() -> None:
    keys = jax.random.split(jax.random.key(1), 4000)
    places = np.asarray(jax.vmap(lambda key: choose_clients(key, jnp.asarray([5, 1, 7, 2]), 2))(keys))
    np.testing.assert_allclose(np.bincount(places.ravel(), minlength=4) / 4000, 0.5, atol=0.05)


@pytest.mark.slow
@LAW
@given(
    seed=st.integers(0, 2**31),
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=LONGEST),
    extra=st.sampled_from([0, 5]),
)
def test_an_order_takes_kinds_in_turn(seed: int, labels: list[int], extra: int) -> None:
    count, padded = len(labels), jnp.asarray([*labels, *[9] * (LONGEST - len(labels)), *[9] * extra])
    order = np.asarray(IN_TURN(jax.random.key(seed), padded, count))[:count]
    assert (order < count).all()
    classes = np.asarray(labels)[order]
    kinds = len(set(labels))
    for start in range(0, count - kinds + 1, kinds):
        assert len(set(classes[start : start + kinds])) == kinds
    for label in set(labels):
        size, taken = labels.count(label), order[classes == label]
        for turn in range(0, len(taken) - size + 1, size):
            assert len(set(taken[turn : turn + size])) == size, "a sample comes again before all had their turn"


@pytest.mark.slow
def test_the_order_within_a_large_kind_is_random() -> None:
    labels = jnp.asarray([0, 0, 0, 0, 1])
    first = np.asarray(jax.vmap(lambda key: IN_TURN(key, labels, 5)[0])(jax.random.split(jax.random.key(0), 2000)))
    np.testing.assert_allclose([(first == i).mean() for i in range(4)], 0.25, atol=0.05)
