"""CBAFed: SSFL where everything is used; thresholds, labels, weights and residuals by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import ServerStep
from fdgjax.methods.cbafed import CBAFed, choose_labels, class_thresholds, shares_of
from fdgjax.methods.fedavg import Message
from fdgjax.methods.parts.extend import Extended
from tests.engine.plain import PlainRound
from tests.toy_models import CLASSES
from tests.toys import (
    FULL_LENGTHS,
    LENGTHS,
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
    federation = toy_federation(FULL_LENGTHS if model == "norm" else LENGTHS)
    return make_case(build("cbafed", federation, model, **chosen), federation, WHOLE)


def server_counts() -> np.ndarray:
    federation = toy_federation()
    rows = np.asarray(federation.server.places[0])[: int(federation.server.length[0])]
    return np.bincount(np.asarray(federation.labels)[rows], minlength=CLASSES)


@pytest.mark.slow
def test_where_everything_is_used_it_is_ssfl_by_argmax() -> None:
    bare = {"threshold": -2.0, "residual": 1.0, "class_aware": True, "by_use": False}
    case = case_of("norm", **bare)
    ssfl = make_case(build("ssfl", case.federation, "norm", guess="argmax"), case.federation, WHOLE).advance(2)
    state = case.advance(2)
    close(state.server.base, ssfl.server)
    close(state.clients, ssfl.clients)
    assert state.server.more.former == {}


def test_the_thresholds_by_hand() -> None:
    counts = np.array([70.0, 20, 10, 0])
    shares = counts / counts.sum() * 4 / 10
    wanted = np.minimum(0.84 + shares - np.sqrt(np.sum((shares - shares.mean()) ** 2) / 3), 0.95)
    got = class_thresholds(shares_of(jnp.asarray(counts, jnp.float32)), CBAFed())
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert wanted[0] == 0.95
    assert (np.diff(wanted) < 0).all(), "a rarer class has a lower threshold"


@pytest.mark.slow
def test_which_labels_are_used() -> None:
    """A sure one; unsure ones whose second guess is rare and is not; a sure one of the rare class."""
    probabilities = np.array([[0.97, 0.02, 0.01], [0.6, 0.1, 0.3], [0.6, 0.3, 0.1], [0.05, 0.05, 0.9]])
    logits, shares = jnp.asarray(np.log(probabilities), jnp.float32), jnp.asarray([0.2, 0.09, 0.01])
    guess, used = choose_labels(logits, shares, CBAFed())
    np.testing.assert_array_equal(guess.labels, [0, 2, 0, 2])
    np.testing.assert_array_equal(used, [True, True, False, True])
    np.testing.assert_allclose(guess.confidence, [0.97, 0.3, 0.6, 0.9], rtol=1e-5)


@pytest.mark.slow
def test_clients_weigh_by_the_labels_they_used() -> None:
    method, federation = build("cbafed", toy_federation()), toy_federation()
    server, clients = method.init(jax.random.key(0), federation)
    update = jax.tree.map(lambda leaf: jnp.ones((4, *leaf.shape)), server.base.variables)
    counts = jnp.asarray([[1.0, 0, 2], [0, 0, 0], [5, 5, 5], [0, 1, 0]])
    step, info = method.aggregate(server, clients, Extended(Message(update, {}), counts), jnp.asarray([5.0, 8, 0, 9]))
    np.testing.assert_allclose(info["weights"], [0.75, 0, 0, 0.25], rtol=1e-6)
    np.testing.assert_array_equal(step.more, [1, 1, 2])


@pytest.mark.slow
def test_counts_are_the_servers_and_those_of_the_clients_that_count() -> None:
    case = shared_case("cbafed", plan=WHOLE)
    state = case.start()
    np.testing.assert_array_equal(state.server.more.counts, server_counts())
    state, info = case.round(state, poison(case.federation, 1))
    wanted = np.zeros(CLASSES)
    for client, length in enumerate(np.asarray(case.federation.train.length)):
        labels, trust = (
            np.asarray(leaf[client])[:length] for leaf in (info.pseudo_labels.labels, info.pseudo_labels.label_weight)
        )
        wanted += (client != 1) * np.bincount(labels, weights=trust, minlength=CLASSES)
    np.testing.assert_array_equal(state.server.more.counts, server_counts() + wanted)


@pytest.mark.slow
def test_labels_that_give_no_batch_are_not_used() -> None:
    """Where every label is used, the third client has a single one."""
    case = make_case(build("cbafed", toy_federation()), plan=make_plan("map", drop_last=True))
    state, info = case.round(case.start(), case.federation)
    np.testing.assert_allclose(info.coefficients["weights"], np.array([5, 8, 0, 9]) / 22, rtol=1e-6)
    assert np.asarray(state.server.more.counts).sum() == server_counts().sum() + 22


@pytest.mark.slow
def test_residuals_by_hand() -> None:
    """Every second round a quarter of the new model and three of the one kept then, the first after round 0."""
    method = build("cbafed", toy_federation(), residual=0.25, period=2)
    server, clients = method.init(jax.random.key(0), toy_federation())
    step = Extended(Message(jax.tree.map(jnp.ones_like, server.base.variables), {}), jnp.zeros(CLASSES))
    begin, update = flat(copy(server.base.variables)), jax.jit(method.update)
    for round_, way in enumerate([1.0, 2.0, 0.25 * 3 + 0.75 * 1, 2.5, 0.25 * 3.5 + 0.75 * 1.5]):
        server, _ = update(server, clients, step, ServerStep(jnp.int32(round_), jax.random.key(0)))
        np.testing.assert_allclose(flat(server.base.variables) - begin, way, rtol=1e-5)


@pytest.mark.slow
def test_clients_train_on_the_samples_they_use_alone() -> None:
    """The plain loop's epochs pass over the pseudo-labels that are used, and over nothing else."""
    case = case_of(threshold=0.38)
    state, info = case.round(case.start(), case.federation)
    used = np.asarray(info.pseudo_labels.label_weight).sum(axis=1)
    assert (used < np.asarray(case.federation.train.length)).any()
    assert used.any()
    wanted, _ = PlainRound(case.method, WHOLE.batching)(case.start(), case.federation, case.everyone)
    close((state.server, state.clients), (wanted.server, wanted.clients), rtol=1e-3, atol=1e-5)
