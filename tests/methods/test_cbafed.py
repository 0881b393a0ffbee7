"""CBAFed: SSFL without thresholds and residuals; thresholds, counts and residuals by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Context, Guess, Moment, Prepared, Samples
from fdgjax.methods.cbafed import CBAFed, Message, Sent, above_thresholds, thresholds
from fdgjax.methods.fedavg import Message as Update
from tests.toys import (
    CLASSES,
    Case,
    build,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    poison,
    shared_case,
    toy_federation,
)

WHOLE = make_plan("map", drop_nonfinite=True)


def case_of(model: str = "dense", **chosen: Any) -> Case:
    return make_case(build("cbafed", toy_federation(), model, **chosen), plan=WHOLE)


def server_counts() -> np.ndarray:
    federation = toy_federation()
    rows = np.asarray(federation.server.places[0])[: int(federation.server.length[0])]
    return np.bincount(np.asarray(federation.labels)[rows], minlength=CLASSES)


def test_without_thresholds_and_residuals_it_is_ssfl_by_argmax() -> None:
    bare = {"threshold": 0.0, "below": 0.0, "above": 0.0, "residual": 1.0, "class_aware": True}
    ssfl = make_case(build("ssfl", toy_federation(), "norm", guess="argmax"), plan=WHOLE).advance(2)
    state = case_of("norm", **bare).advance(2)
    close(state.server.average, ssfl.server)
    close(state.clients, ssfl.clients)
    assert state.server.former == {}


@pytest.mark.parametrize("bound", [1.0, 0.1])
def test_the_thresholds_by_hand(bound: float) -> None:
    counts = np.array([70.0, 20, 10, 0])
    shares = counts / counts.sum()
    wanted = 0.8 + np.clip(shares - np.sqrt(np.mean((shares - shares.mean()) ** 2)), -bound, bound)
    got = thresholds(jnp.asarray(counts, jnp.float32), CBAFed(threshold=0.8, below=bound, above=bound))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert (np.diff(wanted) <= 0).all(), "a rarer class has a lower threshold"


def test_what_is_trusted_and_counted() -> None:
    guess = Guess(jnp.asarray([0, 0, 1, 2, 1]), jnp.asarray([0.9, 0.7, 0.7, 0.5, 0.9]), jnp.ones(5))
    samples = Samples(jnp.asarray([1.0, 1, 1, 1, 0]), lambda function, guess=None: function)
    context = Context(Sent({}, jnp.asarray([0.8, 0.7, 0.6])), (), {}, jnp.int32(0))
    prepared = above_thresholds(lambda context, samples: Prepared(guess))(context, samples)
    assert prepared.guess is not None
    np.testing.assert_array_equal(prepared.guess.trust, [1, 0, 1, 0, 0])
    np.testing.assert_array_equal(prepared.notes, [1, 1, 0])


def test_counts_are_the_servers_and_those_of_the_clients_that_count() -> None:
    case = shared_case("cbafed", plan=WHOLE)
    state = case.start()
    np.testing.assert_array_equal(state.server.counts, server_counts())
    state, info = case.round(state, poison(case.federation, 1))
    wanted = np.zeros(CLASSES)
    for client, length in enumerate(np.asarray(case.federation.train.length)):
        labels, trust = (np.asarray(leaf[client])[:length] for leaf in (info.guess.labels, info.guess.trust))
        wanted += (client != 1) * np.bincount(labels, weights=trust, minlength=CLASSES)
    np.testing.assert_array_equal(state.server.counts, server_counts() + wanted)


def test_residuals_by_hand() -> None:
    """Every second round a quarter of the new model and three of the one kept then."""
    method = build("cbafed", toy_federation(), residual=0.25, period=2)
    server, clients = method.init(jax.random.key(0), toy_federation())
    step = Message(Update(jax.tree.map(jnp.ones_like, server.average.variables), {}), jnp.zeros(CLASSES))
    begin, update = flat(copy(server.average.variables)), jax.jit(method.update)
    for round_, way in enumerate([1.0, 0.5, 1.5, 0.25 * 2.5 + 0.75 * 0.5, 2.0]):
        server, _ = update(server, clients, step, Moment(jnp.int32(round_), jax.random.key(0)))
        np.testing.assert_allclose(flat(server.average.variables) - begin, way, rtol=1e-5)
