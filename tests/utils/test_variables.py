"""Labels split a tree of variables, and the parts make it whole again."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Variables
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import LABELS, bytes_by_label, flatten, label_table, merge, select

NAMES = st.sampled_from(["kernel", "bias", "norm", "block", "Dense_0"])
LEAVES = st.lists(st.integers(0, 3), max_size=2).map(lambda shape: np.ones(shape, np.float32) * (1 + sum(shape)))
TREES = st.dictionaries(NAMES, st.recursive(LEAVES, lambda x: st.dictionaries(NAMES, x, min_size=1)), min_size=1).map(
    lambda params: {"params": params, "batch_stats": {"norm": {"mean": np.zeros(2, np.float32)}}}
)
LAW = settings(derandomize=True, deadline=None, max_examples=40)


def by_hash(path: str) -> str:
    return sorted(LABELS)[sum(map(ord, path)) % len(LABELS)]


@pytest.mark.slow
@LAW
@given(variables=TREES)
def test_parts_are_disjoint_and_make_the_whole(variables: Variables) -> None:
    parts = [select(variables, by_hash, label) for label in LABELS]
    paths = [set(flatten(part)) for part in parts]
    assert sum(map(len, paths)) == len(set().union(*paths)) == len(flatten(variables))
    whole = merge(*parts)
    chex.assert_trees_all_equal_structs(whole, variables)
    assert all(np.array_equal(flatten(whole)[path], leaf) for path, leaf in flatten(variables).items())
    both = select(variables, by_hash, "shared", "local")
    assert set(flatten(both)) == {path for path in flatten(variables) if by_hash(path) != "personal"}


@pytest.mark.slow
@LAW
@given(variables=TREES)
def test_the_table_and_the_bytes_follow_the_labels(variables: Variables) -> None:
    table = label_table(variables, by_hash)
    assert table == {path: by_hash(path) for path in flatten(variables)}
    sizes = bytes_by_label(jax.eval_shape(lambda: jax.tree.map(jnp.asarray, variables)), by_hash)
    assert set(sizes) == set(LABELS)
    for label in LABELS:
        assert sizes[label] == sum(4 * leaf.size for path, leaf in flatten(variables).items() if table[path] == label)


def test_a_word_that_is_no_label_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"'private' for variable 'params/a/kernel'.*shared, personal, local") as error:
        label_table({"params": {"a": {"kernel": jnp.zeros(1)}}}, lambda path: "private")
    assert "\n" not in str(error.value)


def test_subtract_leaf_by_leaf() -> None:
    left, right = (
        {"a": jnp.asarray([3.0, 1.0]), "b": (jnp.ones(()),)},
        {"a": jnp.asarray([1.0, 5.0]), "b": (jnp.ones(()),)},
    )
    got = optax.tree.sub(left, right)
    np.testing.assert_array_equal(got["a"], [2, -4])
    np.testing.assert_array_equal(got["b"][0], 0)
