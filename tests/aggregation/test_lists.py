"""Rules take a list of the clients' pytrees for one that is stacked."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax import aggregation
from fdgjax.aggregation import RULES, chain, mean, partition, stack
from fdgjax.utils.errors import UserError

DRAW = np.random.default_rng(0)
CLIENTS = [
    {"a": DRAW.normal(size=(3, 2)).astype(np.float32), "b": [DRAW.normal(size=4).astype(np.float32)]} for _ in range(3)
]
STACKED = jax.tree.map(lambda *leaves: np.stack(leaves), *CLIENTS)
WEIGHTS = np.asarray([1, 0, 2], np.float32)
FURTHER = {
    "attention": partial(aggregation.attention, tau=1.0),
    "gradient_matching": aggregation.gradient_matching,
    "distance": partial(aggregation.distance_reweighted, beta=0.5),
    "subsets": lambda updates, weights: aggregation.mean_of_subsets(
        updates, weights, members=jnp.asarray([[True, False, True], [False, True, True]]), rule=mean
    ),
    "masked": lambda updates, weights: aggregation.masked_update_mean(
        updates, jax.tree.map(lambda leaf: leaf > 0, updates), weights
    ),
    "chain": chain(mean, RULES["cosine_softmax"]),
    "partition": partition({"one": mean, "two": RULES["min_norm"]}, {"a": "one", "b": "two"}),
}


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize("rule", [pytest.param(rule, id=name) for name, rule in {**RULES, **FURTHER}.items()])
def test_a_list_of_clients_is_their_stack(rule: Callable[..., Any]) -> None:
    both = jax.jit(lambda listed, stacked, weights: (rule(listed, weights), rule(stacked, weights)))
    listed, stacked = both(CLIENTS, STACKED, WEIGHTS)
    chex.assert_trees_all_equal(listed, stacked)


def test_weights_beside_a_list_may_be_a_list_of_numbers() -> None:
    chex.assert_trees_all_equal(mean(CLIENTS, [1, 0, 2]), mean(STACKED, jnp.asarray(WEIGHTS)))
    chex.assert_trees_all_equal(mean(CLIENTS, weights=[1.0, 0, 2]), mean(CLIENTS, jnp.asarray(WEIGHTS)))


def test_a_stacked_root_may_be_a_tuple() -> None:
    one, other = np.asarray([[1.0, 3], [3, 5]], np.float32), np.asarray([[0.0], [2]], np.float32)
    for tree in ((one, other), Pair(one, other)):
        update, _ = mean(tree)
        assert type(update) is type(tree)
        np.testing.assert_allclose(update[0], [2, 4])
        np.testing.assert_allclose(update[1], [1])


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        ([], "empty list of clients"),
        ([{"a": np.zeros(2)}, {"b": np.zeros(2)}], "client 1 of the list has the tree"),
        ([{"a": np.zeros(2)}, {"a": np.zeros(3)}], r"client 1 .* has float32 [3] at ['a'] and client 0 float32 [2]"),
        ([np.zeros(2), np.zeros(2, np.int32)], "client 1 of the list has int32 [2] at its root"),
    ],
)
def test_clients_that_differ_are_one_line(clients: list, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said).replace(r"\.\*", ".*")) as error:
        mean(clients)
    assert "expected" in str(error.value)
    with pytest.raises(UserError, match=re.escape(said).replace(r"\.\*", ".*")):
        stack(clients)


def test_as_many_weights_as_clients() -> None:
    with pytest.raises(UserError, match="3 clients and another list of 2"):
        mean(CLIENTS, [1, 2])


@pytest.mark.parametrize("rule", [mean, RULES["median"], FURTHER["attention"], FURTHER["masked"], FURTHER["partition"]])
@pytest.mark.parametrize(
    ("weights", "shape"), [(np.ones(2), "[2]"), ([1.0, 0.0, 2.0], "[]"), (np.ones((3, 1)), "[3, 1]")]
)
def test_weights_beside_a_stack_are_one_number_for_each_client(rule: Any, weights: Any, shape: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"weights of shape {shape} for 3 clients; expected None, or")):
        rule(STACKED, weights)
