"""StableFDG: the official code's attention, exploration, copies and sharing; whose style a client gets; FedAvg without
both."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdgjax.contract import Batch, Context, Setup
from fdgjax.data.augmentations.style import EPSILON, Style
from fdgjax.methods import METHODS
from fdgjax.methods.parts.bank import Bank
from fdgjax.methods.parts.extend import Extended
from fdgjax.methods.stablefdg import another_style, classmates, rarest_first
from fdgjax.models import HEADS
from fdgjax.models.client_model import as_model
from fdgjax.models.styles import (
    ClientStyle,
    Highlighter,
    Mixing,
    explored,
    far_apart,
    map_style,
    normalised,
    restyled,
    shifted,
    shuffled,
)
from tests.toy_models import CLASSES, IMAGE, DenseNet
from tests.toys import CLIENTS, build, close, make_case, make_plan, shared_case, small_hyper, toy_federation

WHOLE = make_plan(drop_nonfinite=True)


@pytest.fixture(scope="module")
def numbers() -> dict[str, jax.Array]:
    """Made by savertm/StableFDG_github, 77eac35 (`dassl/modeling/ops`: `AFH`, `OMA`, `style_insert`), in float64."""
    with np.load(Path(__file__).parents[1] / "conformance" / "styles_and_adapter.npz") as found:
        return {
            name: jnp.asarray(array, None if array.dtype.kind == "i" else jnp.float32) for name, array in found.items()
        }


@pytest.mark.slow
def test_the_official_attention_and_its_gradients(numbers: dict[str, Any]) -> None:
    params = {name: {"kernel": numbers[f"{name}_kernel"], "bias": numbers[f"{name}_bias"]} for name in ("query", "key")}
    partner = classmates(numbers["attention_labels"], jnp.ones(6))

    def pooled(params: Any, x: jax.Array, partner: jax.Array | None) -> jax.Array:
        highlighted: Any = Highlighter(4).apply({"params": params}, x, partner)
        return highlighted.mean((1, 2))

    alone = pooled(params, numbers["attention_x"], None)
    np.testing.assert_allclose(alone, numbers["attention_pooled_alone"], rtol=1e-5, atol=1e-6)
    found, back = jax.vjp(partial(pooled, partner=partner), params, numbers["attention_x"])
    np.testing.assert_allclose(found, numbers["attention_pooled"], rtol=1e-5, atol=1e-6)
    of_params, of_x = back(numbers["attention_weights"])
    np.testing.assert_allclose(of_x, numbers["attention_gradient"], atol=2e-6)
    for name in ("query", "key"):
        np.testing.assert_allclose(of_params[name]["kernel"], numbers[f"{name}_gradient"], atol=2e-6)


@pytest.mark.slow
def test_the_official_exploration_and_its_gradient(numbers: dict[str, Any]) -> None:
    origin = jnp.concatenate([jnp.arange(7), numbers["explored_copied"]])
    mixing = Mixing(numbers["explored_other"], numbers["explored_share"])
    copies, all_count = jnp.arange(12) >= 7, jnp.ones(12)

    def first(x: jax.Array) -> jax.Array:
        return explored(x[origin], all_count, copies, jnp.float32(3), mixing)

    found, back = jax.vjp(first, numbers["explored_x"])
    np.testing.assert_allclose(found, numbers["explored"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(back(numbers["explored_weights"])[0], numbers["explored_gradient"], rtol=1e-3, atol=2e-4)
    again = explored(numbers["explored"], all_count, copies & False, jnp.float32(3), mixing)
    np.testing.assert_allclose(again, numbers["explored_again"], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_official_numbers_of_samples_of_each_class(numbers: dict[str, Any]) -> None:
    for labels, totals in zip(numbers["copies_labels"], np.asarray(numbers["copies_totals"]), strict=True):
        copied = COPIED(jax.random.key(1), Batch(jnp.zeros((16, 1)), labels, jnp.ones(16)), 16)
        grown = np.concatenate([labels, labels[copied]])
        assert sorted(np.bincount(grown, minlength=4)) == list(totals)


@pytest.mark.slow
def test_the_official_samples_in_another_clients_style(numbers: dict[str, Any]) -> None:
    x, half = numbers["shared_x"], numbers["shared_mean"].shape[0] // 2
    drawn = numbers["shared_mean"][None] + numbers["shared_noise"] * numbers["shared_spread"][None]
    new = Style(drawn[:, :half], jnp.maximum(drawn[:, half:], 0))
    np.testing.assert_allclose(restyled(normalised(x, map_style(x)), new), numbers["shared"], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@given(st.lists(st.booleans(), min_size=2, max_size=7), st.integers(0, 99))
def test_half_of_the_samples_keep_their_style(there: list[bool], seed: int) -> None:
    """Of those that count; the others have exactly the other client's, where it has no spread."""
    counted = jnp.asarray(np.pad(there, (0, 7 - len(there))), jnp.float32)
    x = jax.random.normal(jax.random.key(seed), (7, 3, 3, 2))
    other = ClientStyle(jnp.asarray([5.0, -5.0]), jnp.asarray([3.0, 4.0]), jnp.zeros(2), jnp.zeros(2))
    y = SHIFTED(jax.random.key(seed + 1), x, other, counted)
    same = np.asarray(jnp.max(jnp.abs(x - y), (1, 2, 3)) < 1e-4)
    assert same[np.asarray(counted) > 0].sum() == sum(there) // 2
    np.testing.assert_allclose(np.asarray(y)[~same].mean((1, 2)), np.tile([5.0, -5.0], (sum(~same), 1)), atol=1e-4)
    spread = np.asarray(y)[~same].std((1, 2), ddof=1)
    np.testing.assert_allclose(spread, np.tile([3.0, 4.0], (sum(~same), 1)), rtol=1e-3)


SHIFTED, MATES, COPIED = jax.jit(shifted), jax.jit(classmates), jax.jit(rarest_first, static_argnums=2)


@pytest.mark.slow
def test_seeds_are_drawn_by_their_squared_distance_from_the_nearest() -> None:
    points, counted = jnp.asarray([[0.0], [1.0], [3.0], [50.0]]), jnp.asarray([1.0, 1.0, 1.0, 0.0])
    keys = jax.random.split(jax.random.key(0), 6000)
    rows = np.asarray(jax.jit(jax.vmap(lambda key: far_apart(key, points, counted, 3)))(keys))
    assert (np.sort(rows, axis=1) == [0, 1, 2]).all()
    chances = np.bincount(rows[:, 0], minlength=3) / len(rows)
    np.testing.assert_allclose(chances, np.full(3, 1 / 3), atol=0.025)
    for first, weights in ((0, (0, 1, 9)), (1, (1, 0, 4)), (2, (9, 4, 0))):
        second = rows[rows[:, 0] == first, 1]
        chances = np.bincount(second, minlength=3) / len(second)
        np.testing.assert_allclose(chances, np.asarray(weights) / sum(weights), atol=0.05)


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 8), st.integers(0, 99))
def test_copies_and_mates_are_of_real_samples(labels: list[int], real: int, seed: int) -> None:
    """Copies never make a class of the minibatch rarer than another by more than one, unless it had been so."""
    counted, size = min(real, len(labels)), 8
    padded = np.pad(labels, (0, size - len(labels)))
    mask = (np.arange(size) < counted).astype(np.float32)
    batch = Batch(jnp.zeros((size, 1)), jnp.asarray(padded), jnp.asarray(mask))
    copied = np.asarray(COPIED(jax.random.key(seed), batch, size))
    mates = np.asarray(MATES(batch.labels, batch.mask))
    for row in range(counted):
        others = [at for at in range(counted) if at != row and padded[at] == padded[row]]
        assert mates[row] in others if others else mates[row] == row
    order = np.asarray(shuffled(jax.random.uniform(jax.random.key(seed), (size,)), batch.mask))
    assert sorted(order) == list(range(size))
    assert (order[:counted] < counted).all()
    if counted:
        assert (copied < counted).all()
        before = np.bincount(padded[:counted], minlength=4)
        after = before + np.bincount(padded[copied], minlength=4)
        grown = after > before
        assert after[grown].max() <= after[before > 0].min() + 1


@pytest.mark.slow
@given(st.integers(2, 6), st.integers(0, 50), st.data())
def test_each_clients_style_goes_to_one_other(clients: int, now: int, data: st.DataObject) -> None:
    there = np.asarray(data.draw(st.lists(st.booleans(), min_size=clients, max_size=clients)))
    shown = ClientStyle(*[jnp.arange(clients, dtype=jnp.float32)[:, None]] * 4)
    given_to = {}
    for place in range(clients):
        sent = Extended({}, Bank(shown, jnp.asarray(there)))
        style, known = another_style(Context(sent, Extended({}, jnp.int32(place)), {}, jnp.int32(now)))
        assert bool(known) == there[np.arange(clients) != place].any()
        if known:
            given_to[place] = int(style.mean[0])
            assert there[given_to[place]]
            assert given_to[place] != place
    if there.all():
        assert sorted(given_to.values()) == list(range(clients))


def trained(name: str, network: Any, rounds: int, **chosen: Any) -> Any:
    setup = Setup(as_model(network, IMAGE), CLIENTS, 3)
    return make_case(METHODS[name].build(setup, small_hyper(name, **chosen))).advance(rounds)


@pytest.mark.slow
def test_without_styles_and_attention_it_is_fedavg() -> None:
    net = partial(DenseNet, pixels=(2, 2))
    plain, styled = net(CLASSES), HEADS["styled"](net, CLASSES, 1.0)
    fedavg = trained("fedavg", plain, 3)
    close(trained("stablefdg", styled, 3, probability=0.0), fedavg)


@pytest.mark.slow
def test_in_the_first_round_nobody_knows_a_style_and_then_those_of_all_samples() -> None:
    case, federation = shared_case("stablefdg", plan=WHOLE), toy_federation()
    start = case.start()
    assert not np.asarray(start.server.more.there).any()
    first = {name: np.asarray(leaf) for name, leaf in start.server.base.variables["params"]["linear_1"].items()}
    bank = case.advance(1).server.more
    assert np.asarray(bank.there).all()
    for client, (places, length) in enumerate(zip(*map(np.asarray, federation.train), strict=True)):
        images = np.asarray(federation.inputs)[places[:length]].astype(np.float64) / 127.5 - 1
        maps = np.maximum(images.reshape(length, 2, 2, -1) @ first["kernel"] + first["bias"], 0)
        styles = maps.mean((1, 2)), np.sqrt(maps.var((1, 2), ddof=1) + EPSILON)
        for name, style in zip(("mean", "deviation"), styles, strict=True):
            shown = getattr(bank.shown, name)[client]
            np.testing.assert_allclose(shown, style.mean(0), rtol=1e-4, atol=1e-5)
            variance = style.var(0, ddof=1) if length > 1 else 0 * style[0]
            spread = getattr(bank.shown, f"{name}_spread")[client]
            np.testing.assert_allclose(spread, np.sqrt(variance + EPSILON), rtol=1e-3, atol=1e-5)


def test_attention_alone_exchanges_nothing() -> None:
    method = build("stablefdg", toy_federation(), probability=0.0)
    assert method.prepare is None
    server, clients = jax.eval_shape(method.init, jax.random.key(0), toy_federation())
    assert "highlighter" in server.variables["params"]
    assert not jax.tree.leaves(clients)
