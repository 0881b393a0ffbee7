"""A labelled server and clients without labels: what they may know, and what their methods reduce to."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context, Method, Setup
from fdgjax.data.federation import Federation
from fdgjax.engine.local import Batching
from fdgjax.methods import METHODS
from fdgjax.methods.parts.extend import Extended
from fdgjax.methods.parts.hyper import ClientHyper, learning_rate_factor
from fdgjax.methods.parts.pseudo_labelled import PseudoLabelConfig, on_pseudo_labels
from fdgjax.methods.parts.sharing import Share
from fdgjax.utils.errors import UserError
from tests.engine.plain import PlainRound
from tests.marks import mostly_slow
from tests.toy_models import CLASSES, IMAGE, tiny_model
from tests.toys import (
    BATCH,
    Case,
    build,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    row,
    shared_case,
    shared_method,
    small_hyper,
    toy_federation,
)

WHOLE = make_plan("map", drop_nonfinite=True)
SERVED = sorted(name for name, entry in METHODS.items() if entry.protocol == "labelled_server")
BEFORE = Batching(3, BATCH, False)


@functools.cache
def wrapped(name: str) -> Method:
    setup = Setup(tiny_model(method=name), clients=4, rounds=3)
    return on_pseudo_labels(METHODS[name].build, setup, small_hyper(name), PseudoLabelConfig(3), BEFORE)


@functools.cache
def wrapped_case(name: str) -> Case:
    return make_case(wrapped(name), plan=WHOLE)


def other_labels(federation: Federation) -> Federation:
    """The same with the labels of all training samples of clients changed."""
    places, length = (np.asarray(leaf) for leaf in federation.train)
    rows = np.concatenate([row[:n] for row, n in zip(places, length, strict=True)])
    return federation._replace(labels=federation.labels.at[rows].set((federation.labels[rows] + 1) % CLASSES))


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_labels_of_clients_change_nothing(name: str) -> None:
    case = shared_case(name, plan=WHOLE)
    jax.tree.map(
        np.testing.assert_array_equal, case.advance(2, federation=other_labels(case.federation)), case.advance(2)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(["fedavg", "moon", "hfedf", "fedsr", "feddg_ga"], ["fedavg"]))
def test_labels_of_clients_change_nothing_for_a_supervised_method_on_pseudo_labels(name: str) -> None:
    case = wrapped_case(name)
    jax.tree.map(
        np.testing.assert_array_equal, case.advance(2, federation=other_labels(case.federation)), case.advance(2)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_labels_of_the_server_matter(name: str) -> None:
    case = shared_case(name, plan=WHOLE)
    rows = case.federation.server.places[0]
    changed = case.federation._replace(labels=case.federation.labels.at[rows].set(0))
    assert not np.allclose(flat(case.advance(1, federation=changed).server), flat(case.advance(1).server), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "real", "counts"), [(8, 4, False), (8, 5, True), (8, 8, True), (4, 4, True), (4, 3, False)]
)
def test_a_small_partial_batch_has_no_covariance_term(size: int, real: int, counts: bool) -> None:
    """Fewer than five real samples, in a batch that is not whole; the term itself is NumPy's."""
    model, rng = tiny_model(), np.random.default_rng(size + real)
    images = jnp.asarray(rng.normal(size=(size, *IMAGE)), jnp.float32)
    batch = Batch(images, jnp.zeros(size, jnp.int32), jnp.asarray(np.arange(size) < real, jnp.float32))
    variables = model.init(jax.random.key(0))
    context = Context((), (), variables, jnp.int32(0))
    with_it, without = (
        build("uap", toy_federation(), alpha=0.0, beta=beta, least_samples=5).objective for beta in (0.7, 0.0)
    )
    (loss, _), (bare, _) = (jax.jit(one)(variables, batch, jax.random.key(1), context) for one in (with_it, without))
    features = np.asarray(model.apply(variables, images, True, jax.random.key(1))[0].features, np.float64)[:real]
    off = np.cov(features, rowvar=False) - np.eye(features.shape[1])
    np.testing.assert_allclose(loss - bare, counts * 0.7 * np.sum(off**2) / features.shape[1], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_uap_without_its_terms_is_ssfl() -> None:
    bare = make_case(build("uap", toy_federation(), alpha=0.0, beta=0.0), plan=WHOLE)
    close(bare.advance(3), shared_case("ssfl", plan=WHOLE).advance(3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"alpha": 0.0},
        {"beta": 0.0},
        {"covariance": "off_diagonal"},
        {"client_means": "trained"},
        {"classes": 2},
        {"class_aware": False},
        {"guess": "argmax"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_each_choice_of_uap_matters(changed: dict[str, object]) -> None:
    other = make_case(build("uap", toy_federation(), **changed), plan=WHOLE).advance(1)
    assert not np.allclose(flat(other.server), flat(shared_case("uap", plan=WHOLE).advance(1).server), atol=1e-5)


@pytest.mark.slow
def test_a_server_that_trains_last_equals_the_plain_loop() -> None:
    method = shared_method("ssfl")
    stage = method.server_training
    assert stage is not None
    last = method._replace(server_training=stage._replace(last=True))
    case = make_case(last, plan=WHOLE)
    wanted, _ = PlainRound(last, WHOLE.batching)(case.start(), case.federation, case.everyone)
    after, info = case.round(case.start(), case.federation)
    close(after, wanted)
    assert np.isfinite(info.server_loss)


@pytest.mark.slow
def test_the_server_completes_the_global_model_with_its_own_batch_norm() -> None:
    case = shared_case("ssfl", "norm", WHOLE)
    state = case.advance(1)
    (unseen,) = (row(case.method.unseen(state.server, state.clients), i) for i in range(1))
    close(unseen, state.server.variables)
    own = jax.tree.map(lambda leaf: leaf[None], unseen["batch_stats"])
    assert not np.allclose(
        flat(state.clients.local["batch_stats"]), flat(jax.tree.map(lambda x: jnp.repeat(x, 4, 0), own))
    )
    rows = Extended(state.clients, Share(jnp.ones(4), jnp.ones(4, bool)))
    mean = build("ssfl", case.federation, "norm", unseen="mean").unseen(state.server, rows)
    close(mean["batch_stats"], jax.tree.map(lambda x: x.mean(0, keepdims=True), state.clients.local["batch_stats"]))


@pytest.mark.slow
def test_fedavg_on_pseudo_labels_is_fedavg_on_a_federation_so_labelled() -> None:
    case = wrapped_case("fedavg")
    state = case.start()
    guess, server = state.clients.more, state.server
    assert not np.asarray(guess.trust == 0).any()
    labels, (places, lengths) = np.array(case.federation.labels), map(np.asarray, case.federation.train)
    for client, length in enumerate(lengths):
        labels[places[client, :length]] = np.asarray(guess.labels)[client, :length]
    plain = shared_case("fedavg", plan=WHOLE)
    expected, _ = plain.round(
        plain.start()._replace(server=copy(server)), case.federation._replace(labels=jnp.asarray(labels))
    )
    after, info = case.round(state, case.federation)
    close(after.server, expected.server)
    jax.tree.map(np.testing.assert_array_equal, tuple(info.pseudo_labels), tuple(after.clients.more))


@pytest.mark.slow
def test_a_method_on_pseudo_labels_starts_from_the_model_that_guessed() -> None:
    fresh = shared_case("fedavg", plan=WHOLE).start()
    trained = wrapped_case("fedavg").start()
    assert not np.allclose(flat(trained.server), flat(fresh.server), atol=1e-3)


def test_the_cosine_schedule_goes_from_one_to_nothing() -> None:
    h = ClientHyper(client_schedule="cosine", client_learning_rate_decay=0.5)
    for epochs in (0.0, 0.5):
        factors = [float(learning_rate_factor(h, jnp.float32(round_ + epochs), 4)) for round_ in range(5)]
        np.testing.assert_allclose(factors, [0.5**r * (1 + np.cos(np.pi * r / 4)) / 2 for r in range(5)], atol=1e-7)


def test_schedules_by_epochs_are_those_of_pytorch() -> None:
    """`CosineAnnealingLR` and `StepLR(int(0.8 * epochs), 0.1)`, which are told of every epoch of every round."""
    rounds, epochs = 10, 3
    done = [jnp.float32(round_ + epoch / epochs) for round_ in range(rounds) for epoch in range(epochs)]
    every = np.arange(rounds * epochs)
    for schedule, wanted in (
        ("cosine_epochs", (1 + np.cos(np.pi * every / (rounds * epochs))) / 2),
        ("step", np.where(every < int(0.8 * rounds * epochs), 1, 0.1)),
    ):
        factors = [float(learning_rate_factor(ClientHyper(client_schedule=schedule), one, rounds)) for one in done]
        np.testing.assert_allclose(factors, wanted, atol=1e-6)


def test_the_servers_own_is_refused_where_it_does_not_train() -> None:
    with pytest.raises(UserError, match="expected each or mean") as error:
        build("fedbn", toy_federation(), "norm", unseen="server")
    assert "\n" not in str(error.value)
