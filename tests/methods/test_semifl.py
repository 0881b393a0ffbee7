"""SemiFL: SSFL where everything is sure and nothing is mixed; what is sure, who counts, and what is mixed, by hand."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fdgjax.config import make_config
from fdgjax.contract import Batch, Context, Method, Prepared, PseudoLabels, Samples, ServerStep, Trained
from fdgjax.data.federation import Federation
from fdgjax.engine.local import Batching, LocalData, LocalTraining, train_locally
from fdgjax.methods.fedavg import Message
from fdgjax.methods.parts.extend import Extended
from fdgjax.methods.semifl import sure_labels
from tests.engine.plain import PlainRound
from tests.marks import mostly_slow
from tests.toy_models import IMAGE, tiny_model
from tests.toys import (
    BATCH,
    FULL_LENGTHS,
    LENGTHS,
    Case,
    build,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    row,
    toy_federation,
)

WHOLE = make_plan("map", drop_nonfinite=True)
BARE = {"mix": 0.0, "augmentation": "none", "server": "first", "server_momentum": 0.0, "weighting": "samples"}


def case_of(model: str = "dense", **chosen: Any) -> Case:
    federation = toy_federation(FULL_LENGTHS if model == "norm" else LENGTHS)
    return make_case(build("semifl", federation, model, **chosen), federation, WHOLE)


@pytest.mark.slow
def test_with_everything_sure_and_nothing_mixed_it_is_ssfl_by_argmax() -> None:
    case = case_of("norm", **BARE, threshold=0.0, class_aware=True)
    ssfl = make_case(build("ssfl", case.federation, "norm", guess="argmax"), case.federation, WHOLE)
    close(case.advance(2), ssfl.advance(2))


@pytest.mark.slow
def test_where_nothing_is_sure_only_the_server_trains() -> None:
    case = case_of("norm", threshold=2.0)
    before = case.start()
    clients = copy(before.clients)
    state, info = case.round(before, case.federation)
    jax.tree.map(np.testing.assert_array_equal, state.clients, clients)
    assert not np.asarray(info.coefficients["weights"]).any()


@pytest.mark.slow
def test_momentum_moves_nothing_where_nobody_counts() -> None:
    method = build("semifl", toy_federation())
    server, clients = method.init(jax.random.key(0), toy_federation())
    step, now = jax.tree.map(jnp.ones_like, server.variables), ServerStep(jnp.int32(0), jax.random.key(0))
    for anyone, way in ((True, 1.0), (False, 1.0), (True, 2.5)):
        server, _ = method.update(server, clients, Extended(Message(step, {}), jnp.array(anyone)), now)
        np.testing.assert_allclose(flat(server.variables) - start_of(method), way, rtol=1e-5)


def start_of(method: Method) -> np.ndarray:
    return flat(method.init(jax.random.key(0), toy_federation())[0].variables)


@pytest.mark.slow
def test_a_client_with_nothing_sure_is_as_if_it_had_been_left_out() -> None:
    method = build("semifl", toy_federation(), "norm", threshold=0.0, **BARE)
    prepare = method.prepare
    assert prepare is not None

    def unsure_if_small(context: Context, samples: Samples) -> Prepared:
        prepared = prepare(context, samples)
        return prepared._replace(aux=jnp.where(prepared.aux == 1, 0, prepared.aux))

    case = make_case(method._replace(prepare=unsure_if_small), plan=WHOLE)
    before = case.start()
    kept = copy(row(before.clients, 2))
    state, info = case.round(before, case.federation)
    np.testing.assert_allclose(info.coefficients["weights"], np.array([5, 8, 0, 9]) / 22, rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, row(state.clients, 2), kept)


@pytest.mark.slow
def test_a_client_whose_sure_samples_give_no_batch_is_left_out_as_well() -> None:
    plan = make_plan("map", drop_last=True)
    case = make_case(build("semifl", toy_federation(), threshold=0.56, augmentation="none"), plan=plan)
    _, info = case.round(case.start(), case.federation)
    sure = np.asarray(info.pseudo_labels.label_weight).sum(axis=1)
    assert ((sure > 0) & (sure < BATCH)).any()
    trains = sure >= BATCH
    assert trains.any()
    np.testing.assert_allclose(info.coefficients["weights"], trains / trains.sum(), rtol=1e-6)


def test_what_is_sure() -> None:
    confidence = jnp.asarray([0.99, 0.95, 0.9, 0.99])
    guess = PseudoLabels(jnp.arange(4), confidence, jnp.ones(4))
    samples = Samples(jnp.asarray([1.0, 1, 1, 0]), lambda function, guess=None: function)
    context = Context({}, {}, {}, jnp.int32(0))
    prepared = sure_labels(lambda context, samples: Prepared(guess), 0.95)(context, samples)
    assert prepared.pseudo_labels is not None
    np.testing.assert_array_equal(prepared.pseudo_labels.label_weight, [1, 1, 0, 0])
    assert prepared.aux == 2


@pytest.mark.slow
def test_the_loss_by_hand() -> None:
    """Each is mixed with the sample that came along, in the share the key says; all of a batch's samples lead."""
    model, rng, key = tiny_model("norm"), np.random.default_rng(0), jax.random.key(3)
    method = build("semifl", toy_federation(), "norm", augmentation="none", mix=0.7)
    variables = model.init(jax.random.key(0))
    images, others = rng.normal(size=(2, BATCH, *IMAGE)).astype(np.float32)
    labels, theirs = rng.integers(0, 3, (2, BATCH)).astype(np.int32)
    mask = np.array([1.0, 1, 1, 0], np.float32)
    along = Batch(jnp.asarray(others), jnp.asarray(theirs), jnp.ones(BATCH))
    batch = Batch(jnp.asarray(images), jnp.asarray(labels), jnp.asarray(mask), extra_batch=along)
    loss, changed = method.objective(variables, batch, key, Context((), (), variables, jnp.int32(0)))

    _, share_key, _, _ = jax.random.split(jax.random.fold_in(key, 2), 4)
    m = float(jax.random.beta(share_key, 0.75, 0.75))
    assert 0 < m < 1

    def losses(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        output, _ = model.apply(variables, jnp.asarray(x), True, key)
        return np.asarray(optax.softmax_cross_entropy_with_integer_labels(output.logits, jnp.asarray(y)))

    mixed = m * images + (1 - m) * others
    each = losses(images, labels) + 0.7 * (m * losses(mixed, labels) + (1 - m) * losses(mixed, theirs))
    np.testing.assert_allclose(loss, each[:3].mean(), rtol=1e-5)
    # The running statistics are of both, one after the other.
    _, once = model.apply(variables, jnp.asarray(images), True, key)
    close(changed, model.apply({**variables, **once}, jnp.asarray(mixed), True, key)[1])


def counted(trusted: list[int], count: int, epochs: int, drop_last: bool = False) -> tuple[Trained, Federation]:
    """A client of `count` samples in a row of nine, some of them trusted, whose parameters count how often each sample
    led and how often it came along: the gradient of the objective is minus the count."""
    federation = toy_federation()
    samples = len(federation.labels)
    images = jnp.broadcast_to(jnp.arange(samples, dtype=jnp.uint8)[:, None, None, None], (samples, 1, 1, 1))
    federation = federation._replace(inputs=images)

    def objective(variables: Any, batch: Batch, key: jax.Array, context: Context) -> tuple:
        del key, context
        assert isinstance(batch.extra_batch, Batch)
        led, along = (
            jnp.round((one.inputs[:, 0, 0, 0] + 1) * 127.5).astype(jnp.int32) for one in (batch, batch.extra_batch)
        )
        params = variables["params"]
        return -jnp.sum(params["led"][led] * batch.mask) - jnp.sum(params["along"][along]), {}

    start, optimizer = {"params": {"led": jnp.zeros(samples), "along": jnp.zeros(samples)}}, optax.sgd(1.0)
    trust = np.zeros(9, np.float32)
    trust[trusted] = 1
    guess = PseudoLabels(jnp.zeros(9, jnp.int32), jnp.ones(9), jnp.asarray(trust))
    trained = train_locally(
        LocalTraining(objective, optimizer, Batching(epochs, BATCH, drop_last), extra_batch=True),
        LocalData(federation, jnp.arange(10, 19), jnp.int32(count), guess),
        Context((), (), start, jnp.int32(0)),
        optimizer.init(start["params"]),
        jax.random.key(5),
    )
    return trained, federation


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [[], [6], [0, 2, 3, 7], [0, 1, 2, 5, 7], list(range(9))])
def test_an_epoch_has_so_many_steps_as_batches_of_trusted_samples(trusted: list[int]) -> None:
    """Official code: loaders over D_fix, and over as many samples of D_mix, drawn from all of the client's."""
    trained, _ = counted(trusted, count=8, epochs=30)
    real = [place for place in trusted if place < 8]
    assert int(trained.steps) == 30 * math.ceil(len(real) / BATCH)
    wanted = np.zeros(len(trained.variables["params"]["led"]))
    wanted[10 + np.asarray(real, int)] = 30
    np.testing.assert_array_equal(trained.variables["params"]["led"], wanted)
    along = np.asarray(trained.variables["params"]["along"])
    assert along.sum() == BATCH * int(trained.steps)
    assert along[10:18].sum() == along.sum()
    assert not trusted or (along[10:18] > 0).all()


@pytest.mark.slow
def test_partial_batches_of_trusted_samples_may_be_left_out() -> None:
    trained, _ = counted([0, 1, 2, 5, 7], count=8, epochs=3, drop_last=True)
    assert int(trained.steps) == 3
    assert trained.variables["params"]["led"].sum() == 3 * BATCH


@pytest.mark.slow
@pytest.mark.parametrize("model", mostly_slow(("dense", "norm"), ("norm",)))
def test_where_some_are_sure_it_is_the_plain_loop(model: str) -> None:
    case = case_of(model, threshold=0.57, augmentation="none")
    state, info = case.round(case.start(), case.federation)
    sure = np.asarray(info.pseudo_labels.label_weight).sum(axis=1)
    assert 0 < sure.sum() < np.asarray(case.federation.train.length).sum()
    wanted, _ = PlainRound(case.method, WHOLE.batching)(case.start(), case.federation, case.everyone)
    close((state.server, state.clients), (wanted.server, wanted.clients), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("preset", "momentum"), [("rotated_digits", 0.0), ("uap_rotated_mnist_small", 0.0), ("uap_pacs", 0.5)]
)
def test_the_servers_momentum_is_the_papers_but_for_clients_with_adam(preset: str, momentum: float) -> None:
    method = make_config("semifl", preset).method
    assert (method.client_optimizer == "adam") == (momentum == 0)
    assert method.server_momentum == momentum
