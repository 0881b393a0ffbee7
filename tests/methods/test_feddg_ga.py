"""FedDG-GA's laws: FedAvg without a step and in the first round, the weights' rule by hand, gaps of real models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Context, PseudoLabels, PyTree, Samples
from fdgjax.engine.local import LocalData, samples_of
from fdgjax.engine.traffic import traffic
from fdgjax.methods.feddg_ga import adjust
from fdgjax.utils.variables import bytes_of
from tests.toy_models import tiny_model
from tests.toys import (
    CLIENTS,
    build,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    poison,
    row,
    shared_case,
    shared_method,
    toy_federation,
)

WHOLE = make_plan(drop_nonfinite=True)


@pytest.mark.slow
def test_without_a_step_it_is_fedavg_with_equal_weights_and_so_it_is_in_the_first_round() -> None:
    fedavg = make_case(build("fedavg", toy_federation(), weighting="uniform"))
    still = make_case(build("feddg_ga", toy_federation(), step=0.0))
    close(still.advance(2).server, fedavg.advance(2).server)
    case = shared_case("feddg_ga", plan=WHOLE)
    close(case.advance(1).server, fedavg.advance(1).server)
    assert not np.allclose(flat(case.advance(2).server), flat(fedavg.advance(2).server), rtol=0, atol=1e-5)


def predictions(variables: PyTree, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits in float64, and labels, of all samples of a client."""
    federation = toy_federation()
    rows = np.asarray(federation.train.places[client])[: int(federation.train.length[client])]
    images = jnp.asarray(np.asarray(federation.inputs)[rows] / 127.5 - 1, jnp.float32)
    logits = tiny_model().apply(variables, images, False, jax.random.key(0))[0].logits
    return np.asarray(logits, np.float64), np.asarray(federation.labels)[rows]


def mean_loss(variables: PyTree, client: int) -> float:
    """Cross-entropy on all samples of a client."""
    logits, labels = predictions(variables, client)
    return float(np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]))


def accuracy(variables: PyTree, client: int) -> float:
    """The share of a client's samples that is right."""
    logits, labels = predictions(variables, client)
    return float(np.mean(logits.argmax(1) == labels))


@pytest.mark.slow
def test_the_second_rounds_weights_follow_the_losses_of_both_models() -> None:
    case = shared_case("feddg_ga", plan=WHOLE)
    state = case.advance(1)
    received, own = copy(state.server.variables), copy(state.clients.more.model)
    gaps = np.array([mean_loss(received, i) - mean_loss(row(own, i), i) for i in range(CLIENTS)])
    _, info = case.round(state, case.federation)
    wanted = np.clip(1 / CLIENTS + 0.2 / 3 * gaps / np.abs(gaps).max(), 0, 1)
    np.testing.assert_allclose(info.coefficients["weights"], wanted / wanted.sum(), rtol=1e-4)


@pytest.mark.slow
def test_the_step_decays_to_nothing_over_the_rounds() -> None:
    method = build("feddg_ga", toy_federation())
    server, clients = method.init(jax.random.key(0), toy_federation())
    message = traffic(method, toy_federation()).message
    still = jax.tree.map(lambda leaf: jnp.zeros((CLIENTS, *leaf.shape), leaf.dtype), message)
    still = still._replace(more=jnp.asarray([1.0, 0.0, 0.0, -1.0]))
    for round_, factor in ((1, 1.0), (2, 2 / 3), (3, 1 / 3), (4, 0.0)):  # `build` plans three rounds
        rows = clients._replace(more=clients.more._replace(rounds=jnp.full(CLIENTS, round_ + 1)))
        step, _ = method.aggregate(server, rows, still, jnp.ones(CLIENTS))
        moved = 0.2 / 3 * factor
        np.testing.assert_allclose(step.more, [0.25 + moved, 0.25, 0.25, 0.25 - moved], rtol=1e-5)


def test_weights_by_hand_for_some_of_the_clients() -> None:
    weights, gaps = jnp.asarray([0.4, 0.1, 0.3, 0.2]), jnp.asarray([-2.0, jnp.nan, 1.0, 4.0])
    there = jnp.asarray([True, False, True, True])
    moved = np.array([0.4 - 0.5 * 0.6, 0.3 + 0.25 * 0.6, 0.2 + 0.6])
    got = np.asarray(adjust(weights, gaps, there, 3 * 0.6))
    np.testing.assert_allclose(got[[0, 2, 3]], moved * 0.9 / moved.sum(), rtol=1e-6)
    assert got[1] == np.float32(0.1)
    # Clipped to zero, all of them.
    np.testing.assert_array_equal(adjust(weights, -jnp.ones(4), there, 30.0), weights)
    np.testing.assert_allclose(adjust(weights, jnp.zeros(4), there, 1.0), weights, rtol=1e-6)


@pytest.mark.slow
def test_a_client_that_was_dropped_keeps_its_model_and_weight() -> None:
    case = shared_case("feddg_ga", plan=WHOLE)
    state = case.advance(2)
    before = copy(row(state.clients, 1))
    state, info = case.round(state, poison(case.federation, 1))
    np.testing.assert_array_equal(flat(row(state.clients, 1)), flat(before))
    assert info.coefficients["weights"][1] == 0
    np.testing.assert_allclose(jnp.sum(state.clients.more.weight), 1, rtol=1e-5)


def test_one_number_more_travels() -> None:
    mine, fedavgs = (traffic(shared_method(name), toy_federation()) for name in ("feddg_ga", "fedavg"))
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent)
    assert bytes_of(mine.message) == bytes_of(fedavgs.message) + 4


@pytest.mark.slow
def test_labels_count_as_much_as_they_are_trusted_and_accuracies_can_be_compared() -> None:
    federation, method = toy_federation(), build("feddg_ga", toy_federation(), gap="accuracy")
    state = shared_case("feddg_ga", plan=WHOLE).advance(1)
    mine = row(state.clients, 3)
    context = Context(method.send(state.server, mine), mine, state.server.variables, jnp.int32(1))
    samples = samples_of(LocalData(federation, federation.train.places[3], federation.train.length[3]), 4)
    gap, prepare = {}, method.prepare
    assert prepare is not None
    for label in range(3):
        chosen = (federation.labels[federation.train.places[3]] == label).astype(jnp.float32)
        only = Samples(samples.mask, lambda function, guess=None, c=chosen: samples.each(function, trusted(c)))
        gap[label] = float(prepare(context, only).aux), float(chosen.sum())
    everything = float(prepare(context, samples).aux)
    assert everything == pytest.approx(sum(g * n for g, n in gap.values()) / 9, abs=1e-6)
    assert everything == pytest.approx(accuracy(mine.more.model, 3) - accuracy(context.received, 3), abs=1e-6)


def trusted(trust: jax.Array) -> PseudoLabels:
    """The labels of the last client, trusted so much."""
    return PseudoLabels(toy_federation().labels[toy_federation().train.places[3]], trust, trust)
