"""Clients as rows of positions: padded, stacked, pooled, nothing lost."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fdgjax.data.federation import (
    TABLES,
    Federation,
    Partition,
    Rows,
    federate,
    federate_seeds,
    label_counts,
    on_device,
    pad_rows,
    pool,
    stack_seeds,
    without_labels,
)
from fdgjax.data.protocol_parts import SplitSpec
from fdgjax.data.protocols import leave_one_out
from fdgjax.data.sources.domains import Domains
from fdgjax.utils.errors import UserError
from tests.toys import domains_of, reorder, toy_federation

LAW = settings(derandomize=True, deadline=None, max_examples=50)


def split(data: Domains, **chosen: Any) -> Partition:
    return leave_one_out(data, SplitSpec(**{"target": "west", "validation": 0.25, **chosen}))


ROWS = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=5).filter(lambda rows: any(rows))


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float32])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (7, 3, 2)])
def test_a_device_has_its_own_copy_of_the_hosts_values(shape: tuple[int, ...], kind: type[np.generic]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).astype(kind).reshape(shape)
    copy, wanted = on_device(values, None), values.copy()
    values[...] = 9
    np.testing.assert_array_equal(copy, wanted, strict=True)


@pytest.mark.slow
@LAW
@given(rows=ROWS)
def test_padding_keeps_every_row(rows: list[list[int]]) -> None:
    padded = pad_rows([np.asarray(r, np.int64) for r in rows])
    assert padded.places.dtype == padded.length.dtype == jnp.int32
    assert padded.places.shape == (len(rows), max(map(len, rows)))
    assert [np.asarray(p)[:n].tolist() for p, n in zip(padded.places, np.asarray(padded.length), strict=True)] == rows
    assert np.asarray(padded.places).sum() == sum(map(sum, rows)), "padding is zero"


@pytest.mark.slow
@LAW
@given(tables=st.lists(st.tuples(*[st.lists(st.integers(0, 99), min_size=1, max_size=6)] * 3), min_size=2, max_size=4))
def test_stacked_seeds_keep_every_row(tables: list[tuple[list[int], ...]]) -> None:
    base = toy_federation()
    seeds = [base._replace(train=pad_rows([np.asarray(r) for r in rows])) for rows in tables]
    stacked = stack_seeds(seeds)
    longest = max(len(r) for rows in tables for r in rows)
    assert stacked.train.places.shape == (len(tables), 3, longest)
    for rows, places, lengths in zip(tables, *map(np.asarray, stacked.train), strict=True):
        assert [p[:n].tolist() for p, n in zip(places, lengths, strict=True)] == list(rows)
    assert stacked.inputs is base.inputs
    for name in set(TABLES) - {"train"}:
        assert getattr(stacked, name).places.shape == (len(tables), *getattr(base, name).places.shape)


def test_the_tables_of_a_seed_are_all_there_are() -> None:
    federation = toy_federation()
    assert {name for name in Federation._fields if isinstance(getattr(federation, name), Rows)} == set(TABLES)


def test_nothing_is_a_row_without_samples() -> None:
    for many in (1, 3):
        nothing = pad_rows([np.zeros(0, np.int64)] * many)
        np.testing.assert_array_equal(nothing.places, np.zeros((many, 1)))
        np.testing.assert_array_equal(nothing.length, np.zeros(many))


@LAW
@given(batch=st.integers(1, 40), small=st.integers(8, 30))
def test_a_client_that_would_never_train_is_refused_by_name(batch: int, small: int) -> None:
    data = domains_of((30, 30, small, 30))
    parts = split(data)
    federation = federate(data, parts, batch_size=batch, drop_last=False)
    assert np.asarray(federation.train.length).tolist() == [len(r) for r in parts.train]
    short = [client for client, r in enumerate(parts.train) if len(r) < batch]
    if not short:
        federate(data, parts, batch_size=batch, drop_last=True)
        return
    with pytest.raises(UserError, match=f"client {short[0]} holds {len(parts.train[short[0]])} .*drop_last") as error:
        federate(data, parts, batch_size=batch, drop_last=True)
    assert "\n" not in str(error.value)
    assert f"batch_size={batch}" in str(error.value)


def test_pooled_data_and_a_server_that_would_never_train_are_refused() -> None:
    """Pooled, only the sum counts."""
    data = domains_of((30, 30, 20, 30))
    parts = split(data)
    held = sum(map(len, parts.train))
    federate_seeds(data, [parts], batch_size=held, drop_last=True, pooled=True)
    with pytest.raises(UserError, match=f"the pooled data have {held} training samples"):
        federate_seeds(data, [parts], batch_size=held + 1, drop_last=True, pooled=True)
    served = parts._replace(server=np.arange(5))
    with pytest.raises(UserError, match="the server holds 5 training samples"):
        federate(data, served, batch_size=6, drop_last=True)
    federate(data, served, batch_size=6, drop_last=False)


@pytest.mark.slow
def test_a_federation_is_the_data_and_the_partition() -> None:
    data = domains_of((20, 18, 16, 24))
    parts = split(data, shots=1)
    federation = federate(data, parts, batch_size=4, drop_last=False)
    assert federation.labels.dtype == federation.domains.dtype == federation.ids.dtype == jnp.int32
    np.testing.assert_array_equal(federation.inputs, data.inputs, strict=True)
    np.testing.assert_array_equal(federation.labels, data.labels)
    assert len(set(np.asarray(federation.ids).tolist())) == 3
    parts = parts._replace(test=[rows[:client] for client, rows in enumerate(parts.validation)])
    federation = federate(data, parts, batch_size=4, drop_last=False)
    tables = ((getattr(federation, name), getattr(parts, name)) for name in ("train", "validation", "test"))
    for rows, wanted in tables:
        assert np.asarray(rows.length).tolist() == [len(own) for own in wanted]
        for client, own in enumerate(wanted):
            np.testing.assert_array_equal(rows.places[client, : int(rows.length[client])], own)
    np.testing.assert_array_equal(federation.target.places[0], parts.target)


@LAW
@given(order=st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
def test_pooling_is_all_training_samples_at_one_client(order: list[int]) -> None:
    assume(order)
    federation = reorder(toy_federation(), order)
    pooled = pool(federation)
    wanted = [p for row, n in zip(*map(np.asarray, federation.train), strict=True) for p in row[:n]]
    assert np.asarray(pooled.train.places).tolist() == [wanted]
    assert np.asarray(pooled.train.length).tolist() == [len(wanted)]
    assert len(pooled.ids) == 1
    for name in ("inputs", "labels", "validation", "test", "target"):
        for left, right in zip(
            jax.tree.leaves(getattr(pooled, name)), jax.tree.leaves(getattr(federation, name)), strict=True
        ):
            np.testing.assert_array_equal(left, right)


def test_without_labels_only_the_servers_are_left() -> None:
    federation = toy_federation()
    hidden = without_labels(federation)
    own = np.asarray(federation.server.places[0])[: int(federation.server.length[0])]
    np.testing.assert_array_equal(hidden.labels[own], federation.labels[own])
    others = np.setdiff1d(np.arange(len(federation.labels)), own)
    assert np.asarray(federation.labels)[others].any()
    assert not np.asarray(hidden.labels)[others].any()


@pytest.mark.slow
def test_classes_are_counted_row_by_row_without_the_padding() -> None:
    rows = Rows(jnp.asarray([[0, 1, 2, 0], [3, 0, 0, 0]], jnp.int32), jnp.asarray([3, 1], jnp.int32))
    counts = label_counts(jnp.asarray([1, 0, 1, 2], jnp.int32), rows, 4)
    np.testing.assert_array_equal(counts, [[1, 2, 0, 0], [0, 0, 1, 0]])
