"""Updates that are never written out answer every question as if they were."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.aggregation import (
    Updates,
    concatenated,
    cosine_softmax,
    cosine_softmax_updates,
    explicit,
    pulled_back,
    through_heads,
)
from fdgjax.aggregation.updates import cosines, cosines_to_sums, largest_magnitude, power_of_two, scale_rows
from tests.toys import close, flat

CLIENTS = 4


class Pair(NamedTuple):
    """Two parts."""

    first: Any
    second: Any


SCALE = jnp.float32(1.5)


def server_model(primal: Any, scale: jax.Array, x: jax.Array) -> Any:
    """A small nonlinear model whose gradient by `primal` differs from input to input."""
    hidden = scale * jnp.tanh(primal["w"] @ x + primal["b"])
    return {"out": primal["head"] @ hidden, "sum": jnp.sum(hidden)}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [1, 100, 4096, 20_000])
def test_one_number_that_is_not_finite_is_found_in_any_leaf(size: int, bad: float) -> None:
    # XLA:CPU's maximum of 4,096 numbers and more passes over NaN.
    of = jax.jit(largest_magnitude)
    tree: dict[str, Any] = {"a": np.ones((3, 5), np.float32), "b": np.full(size, -2, np.float32), "count": np.int32(7)}
    assert of(tree) == 2
    for place in {0, size // 2, size - 1}:
        b = tree["b"].copy()
        b[place] = bad
        assert of({**tree, "b": b}) == np.inf


def problem(seed: int) -> tuple[Any, jax.Array, Any]:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    primal = {"w": draw(3, 2), "b": draw(3), "head": draw(5, 3)}
    return primal, draw(CLIENTS, 2), {"out": draw(CLIENTS, 5), "sum": draw(CLIENTS)}


def written_out(primal: Any, inputs: jax.Array, cotangents: Any) -> Any:
    """One gradient per client, by `jax.grad` of an inner product."""

    def gradient(x: jax.Array, delta: Any) -> Any:
        def inner(p: Any) -> jax.Array:
            y = server_model(p, SCALE, x)
            return jnp.sum(y["out"] * delta["out"]) + y["sum"] * delta["sum"]

        return jax.grad(inner)(primal)

    rows = [gradient(inputs[i], jax.tree.map(lambda d, i=i: d[i], cotangents)) for i in range(CLIENTS)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


def answers(updates: Updates, coefficients: jax.Array, direction: Any) -> Any:
    return updates.combine(coefficients), updates.inner(direction), updates.norms(), updates.pairs(), updates.stacked()


@jax.jit
def both(primal: Any, inputs: jax.Array, cotangents: Any, c: jax.Array) -> tuple[Any, Any]:
    """The answers of updates pulled back and of those written out."""
    tree = written_out(primal, inputs, cotangents)
    direction = jax.tree.map(lambda leaf: leaf[1] - 2 * leaf[0], tree)
    updates = pulled_back(server_model, primal, SCALE, inputs=inputs, cotangents=cotangents)
    assert updates.clients == CLIENTS
    return answers(updates, c, direction), answers(explicit(tree), c, direction)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=10)
@given(seed=st.integers(0, 999), shares=st.lists(st.integers(0, 5), min_size=CLIENTS, max_size=CLIENTS))
def test_pulled_back_updates_answer_as_written_out_ones(seed: int, shares: list[int]) -> None:
    close(*both(*problem(seed), jnp.asarray(shares, jnp.float32)), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["tree", "leaf"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_rule_does_not_see_the_difference(sign: int, scope: str) -> None:
    primal, inputs, cotangents = problem(5)
    weights = jnp.asarray([1.0, 0.0, 3.0, 2.0])
    rule = partial(cosine_softmax_updates, weights=weights, sign=sign, scope=scope, temperature=0.5)
    wanted = cosine_softmax(written_out(primal, inputs, cotangents), weights, sign=sign, scope=scope, temperature=0.5)
    close(
        rule(pulled_back(server_model, primal, SCALE, inputs=inputs, cotangents=cotangents)),
        wanted,
        rtol=1e-3,
        atol=1e-5,
    )


@pytest.mark.slow
@pytest.mark.parametrize("rubbish", [np.nan, np.inf])
def test_a_pulled_back_client_of_weight_zero_is_invisible(rubbish: float) -> None:
    primal, inputs, cotangents = problem(6)
    weights = jnp.asarray([1.0, 0.0, 3.0, 2.0])
    spoilt = jax.tree.map(lambda leaf: leaf.at[1].set(rubbish), cotangents)
    got = cosine_softmax_updates(pulled_back(server_model, primal, SCALE, inputs=inputs, cotangents=spoilt), weights)
    close(
        got,
        cosine_softmax_updates(pulled_back(server_model, primal, SCALE, inputs=inputs, cotangents=cotangents), weights),
    )


class Network(NamedTuple):
    """Hidden layers, and linear ones after them."""

    trunk: Any
    heads: Any


def features_of(trunk: Any, scale: jax.Array, x: jax.Array) -> jax.Array:
    return scale * jnp.tanh(trunk["w"] @ x + trunk["b"])


def heads_of(heads: Any, features: jax.Array) -> Any:
    """Two linear layers, one of which makes two leaves."""
    one, two = ((head["bias"] + features @ head["kernel"]) for head in (heads["one"], heads["two"]))
    return {"one": one.reshape(2, 3), "two": two[:4], "three": two[4]}


def network(seed: int) -> tuple[Network, jax.Array, Any]:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    heads = {name: {"kernel": draw(3, size), "bias": draw(size)} for name, size in (("one", 6), ("two", 5))}
    cotangents = {"one": draw(CLIENTS, 2, 3), "two": draw(CLIENTS, 4), "three": draw(CLIENTS)}
    return Network({"w": draw(3, 2), "b": draw(3)}, heads), draw(CLIENTS, 2), cotangents


def factored(primal: Network, inputs: jax.Array, cotangents: Any) -> Updates:
    """By factors where the layers are linear, pulled back before these."""
    features = jax.vmap(partial(features_of, primal.trunk, SCALE))(inputs)
    heads, at_features = through_heads(heads_of, primal.heads, features=features, cotangents=cotangents)
    return concatenated(
        Network(pulled_back(features_of, primal.trunk, SCALE, inputs=inputs, cotangents=at_features), heads)
    )


def network_written_out(primal: Network, inputs: jax.Array, cotangents: Any) -> Network:
    """One gradient per client, of an inner product."""

    def inner(p: Network, x: jax.Array, delta: Any) -> jax.Array | int:
        y = heads_of(p.heads, features_of(p.trunk, SCALE, x))
        return sum(jnp.vdot(y[name], delta[name]) for name in y)

    return jax.vmap(jax.grad(inner), in_axes=(None, 0, 0))(primal, inputs, cotangents)


@jax.jit
def both_answers(case: tuple[Network, jax.Array, Any], coefficients: jax.Array) -> tuple[Any, Any]:
    tree, updates = network_written_out(*case), factored(*case)
    direction = jax.tree.map(lambda leaf: leaf[1] - 2 * leaf[0], tree)
    return answers(updates, coefficients, direction), answers(explicit(tree), coefficients, direction)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=20)
@given(seed=st.integers(0, 999), shares=st.lists(st.integers(0, 5), min_size=CLIENTS, max_size=CLIENTS))
def test_factors_answer_as_written_out_gradients(seed: int, shares: list[int]) -> None:
    got, wanted = both_answers(network(seed), jnp.asarray(shares, jnp.float32))
    close(got, wanted, rtol=1e-5, atol=1e-4)


@jax.jit
def aligned(case: tuple[Network, jax.Array, Any], weights: jax.Array) -> Any:
    """The shares by the pairs, by a direction, and of written-out gradients."""
    updates = factored(*case)
    assert updates.by_pairs, "a program for few clients"
    rule = partial(cosine_softmax_updates, temperature=0.2)
    kinds = updates, updates._replace(by_pairs=False), explicit(network_written_out(*case))
    return [rule(kind, weights)[1] for kind in kinds]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-21, 1.0, 1e19, 1e30])
def test_shares_by_factors_are_those_of_written_out_gradients(scale: float) -> None:
    primal, inputs, cotangents = network(8)
    weights, before = jnp.asarray([1.0, 0.0, 3.0, 2.0]), aligned(network(8), jnp.asarray([1.0, 0.0, 3.0, 2.0]))
    scaled = jax.tree.map(lambda leaf: (jnp.float32(scale) * leaf).at[1].set(jnp.nan), cotangents)
    by_pairs, by_direction, written = aligned((primal, inputs, scaled), weights)
    assert np.ptp(before[2]) > 0.1
    for got in (by_pairs, by_direction, written):
        np.testing.assert_allclose(got, before[2], rtol=1e-5)


COSINES_BY_PAIRS = jax.jit(
    lambda tree, coefficients: cosines_to_sums(explicit(tree)._replace(by_pairs=True))(coefficients)
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 999),
    shares=st.lists(st.sampled_from([0.25, 1, 3]), min_size=CLIENTS, max_size=CLIENTS),
    opposed=st.booleans(),
    silent=st.booleans(),
    scale=st.sampled_from([1e-20, 1, 1e18]),
)
def test_cosines_by_pairs_are_those_with_the_sum(
    seed: int, shares: list[float], opposed: bool, silent: bool, scale: float
) -> None:
    """Against float64, also where the sum is shorter than what is summed, and where a client does not count."""
    rng, coefficients = np.random.default_rng(seed), np.array(shares)
    updates = rng.normal(size=(CLIENTS, 6)) * rng.uniform(0.5, 2, (CLIENTS, 1))
    if opposed:
        updates[1] = -0.7 * coefficients[0] / coefficients[1] * updates[0]
        updates[2:] *= 0.05
    if silent:
        updates[3], coefficients[3] = np.nan, 0
    there = np.arange(CLIENTS) < CLIENTS - silent
    total = coefficients[there] @ updates[there]
    wanted = updates[there] @ total / np.linalg.norm(updates[there], axis=1) / np.linalg.norm(total)
    got = COSINES_BY_PAIRS(jnp.asarray(scale * updates, jnp.float32), jnp.asarray(coefficients, jnp.float32))
    np.testing.assert_allclose(np.asarray(got)[there], wanted, atol=1e-4)


def test_many_clients_go_by_directions() -> None:
    heads, found = network(9)[0].heads, {}

    def look(features: jax.Array) -> jax.Array:
        y = jax.vmap(partial(heads_of, heads))(features)
        updates, at_features = through_heads(heads_of, heads, features=features, cotangents=y)
        found[len(features)] = updates.by_pairs
        return at_features

    for clients in (8, 9):
        assert jax.eval_shape(look, jax.ShapeDtypeStruct((clients, 3), jnp.float32)).shape == (clients, 3)
    assert found == {8: True, 9: False}, "a gradient of four numbers for each output, and its products"


@pytest.mark.slow
def test_joined_parts_are_one_vector() -> None:
    trees = [written_out(*problem(seed)) for seed in (1, 2)]
    together, c = explicit(Pair(*trees)), jnp.asarray([0.5, 0.0, 1.0, 2.0])
    direction = Pair(*[jax.tree.map(lambda leaf: leaf[0] + leaf[3], tree) for tree in trees])
    parts = concatenated(Pair(*[explicit(tree) for tree in trees]))
    close(answers(parts, c, direction), answers(together, c, direction), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e-21, 1e19, 1e30])
def test_norms_and_cosines_at_extreme_scales(scale: float) -> None:
    """By float64; the parts' sizes differ, and so do the clients'."""
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(CLIENTS, 3, 2)), scale * rng.normal(size=(CLIENTS, 5))
    first[1:], second[2] = scale * first[1:], 1e3 * second[2]
    updates = concatenated(Pair(*[explicit(jnp.asarray(part, jnp.float32)) for part in (first, second)]))
    matrix = np.concatenate([first.reshape(CLIENTS, -1), second], axis=1)
    direction, lengths = matrix[3] - matrix[0] / 3, np.linalg.norm(matrix, axis=1)
    wanted = matrix / lengths[:, None] @ (direction / np.linalg.norm(direction))
    parts = jnp.asarray(direction[:6].reshape(3, 2), jnp.float32), jnp.asarray(direction[6:], jnp.float32)
    np.testing.assert_allclose(np.asarray(updates.norms(), np.float64), lengths, rtol=1e-5)
    np.testing.assert_allclose(cosines(updates, updates.norms(), Pair(*parts)), wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-21, 1e19, 1e30])
def test_a_pulled_back_update_may_be_of_any_size(scale: float) -> None:
    primal, inputs, cotangents = problem(7)
    rule = partial(cosine_softmax_updates, temperature=0.5)
    scaled = jax.tree.map(lambda leaf: jnp.float32(scale) * leaf, cotangents)
    (_, shares), (plain, wanted) = (
        rule(pulled_back(server_model, primal, SCALE, inputs=inputs, cotangents=one)) for one in (scaled, cotangents)
    )
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(shares, wanted, rtol=1e-4)
    assert np.isfinite(flat(plain)).all()


@settings(derandomize=True, deadline=None)
@given(st.floats(-(2.0**126), 2.0**126, width=32, allow_subnormal=False).map(abs))
def test_a_power_of_two_is_the_largest_below_and_has_an_exact_inverse(magnitude: float) -> None:
    power, inverse = (float(x) for x in power_of_two(jnp.float32(magnitude)))
    assert power * inverse == 1
    assert np.frexp(power)[0] == 0.5
    assert 1 <= magnitude * inverse < 2 or (magnitude == 0 and power == 2.0**-126)


@pytest.mark.parametrize("magnitude", [3e38, np.inf, np.nan])
def test_beyond_the_last_power_with_an_inverse_it_is_that(magnitude: float) -> None:
    power, inverse = power_of_two(jnp.float32(magnitude))
    assert (power, inverse) == (2.0**126, 2.0**-126)


def test_a_share_of_an_integer_is_the_nearest_one() -> None:
    scaled = scale_rows(jnp.asarray([7, 7, -7, 7], jnp.int32), jnp.asarray([0.9, 0.2, 0.9, 0.0]))
    np.testing.assert_array_equal(scaled, [6, 1, -6, 0])
    assert scaled.dtype == jnp.int32
