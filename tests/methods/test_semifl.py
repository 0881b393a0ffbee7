"""SemiFL: SSFL where everything is sure and nothing is mixed; what is sure, who counts, and what is mixed, by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fdgjax.contract import Batch, Context, Guess, Method, Prepared, Samples
from fdgjax.methods.fedavg import Message
from fdgjax.methods.parts.extend import Extended
from fdgjax.methods.semifl import sure_labels
from tests.toys import (
    BATCH,
    FULL_LENGTHS,
    IMAGE,
    LENGTHS,
    Case,
    build,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    row,
    tiny_model,
    toy_federation,
)

WHOLE = make_plan("map", drop_nonfinite=True)
BARE = {"mix": 0.0, "augmentation": "none", "server": "first", "server_momentum": 0.0, "weighting": "samples"}


def case_of(model: str = "dense", **chosen: Any) -> Case:
    federation = toy_federation(FULL_LENGTHS if model == "norm" else LENGTHS)
    return make_case(build("semifl", federation, model, **chosen), federation, WHOLE)


def test_with_everything_sure_and_nothing_mixed_it_is_ssfl_by_argmax() -> None:
    case = case_of("norm", **BARE, threshold=0.0, class_aware=True)
    ssfl = make_case(build("ssfl", case.federation, "norm", guess="argmax"), case.federation, WHOLE)
    close(case.advance(2), ssfl.advance(2))


def test_where_nothing_is_sure_only_the_server_trains() -> None:
    case = case_of("norm", threshold=2.0)
    before = case.start()
    clients = copy(before.clients)
    state, info = case.round(before, case.federation)
    jax.tree.map(np.testing.assert_array_equal, state.clients, clients)
    assert not np.asarray(info.coefficients["weights"]).any()


def test_momentum_moves_nothing_where_nobody_counts() -> None:
    method = build("semifl", toy_federation())
    server, clients = method.init(jax.random.key(0), toy_federation())
    step = jax.tree.map(jnp.ones_like, server.variables)
    for anyone, way in ((True, 1.0), (False, 1.0), (True, 2.5)):
        after, _ = method.update(server, clients, Extended(Message(step, {}), jnp.array(anyone)), None)
        server = after
        np.testing.assert_allclose(flat(server.variables) - start_of(method), way, rtol=1e-5)


def start_of(method: Method) -> np.ndarray:
    return flat(method.init(jax.random.key(0), toy_federation())[0].variables)


def test_a_client_with_nothing_sure_is_as_if_it_had_been_left_out() -> None:
    method = build("semifl", toy_federation(), "norm", threshold=0.0, **BARE)
    prepare = method.prepare
    assert prepare is not None

    def unsure_if_small(context: Context, samples: Samples) -> Prepared:
        prepared = prepare(context, samples)
        return prepared._replace(notes=jnp.where(prepared.notes == 1, 0, prepared.notes))

    case = make_case(method._replace(prepare=unsure_if_small), plan=WHOLE)
    before = case.start()
    kept = copy(row(before.clients, 2))
    state, info = case.round(before, case.federation)
    np.testing.assert_allclose(info.coefficients["weights"], np.array([5, 8, 0, 9]) / 22, rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, row(state.clients, 2), kept)


def test_what_is_sure() -> None:
    confidence = jnp.asarray([0.99, 0.95, 0.9, 0.99])
    guess = Guess(jnp.arange(4), confidence, jnp.ones(4))
    samples = Samples(jnp.asarray([1.0, 1, 1, 0]), lambda function, guess=None: function)
    prepared = sure_labels(lambda context, samples: Prepared(guess), 0.95)(None, samples)
    np.testing.assert_array_equal(prepared.guess.trust, [1, 1, 0, 0])
    assert prepared.notes == 2


def test_the_loss_by_hand() -> None:
    """Mixed with whom the key says, in the share it says; only trusted labels lead, any may be mixed in."""
    model, rng, key = tiny_model(), np.random.default_rng(0), jax.random.key(3)
    method = build("semifl", toy_federation(), augmentation="none", mix=0.7)
    variables = model.init(jax.random.key(0))
    images, labels = rng.normal(size=(BATCH, *IMAGE)).astype(np.float32), rng.integers(0, 3, BATCH)
    mask, trust = np.array([1.0, 1, 1, 0], np.float32), np.array([1.0, 0, 1, 1], np.float32)
    batch = Batch(*map(jnp.asarray, (images, labels.astype(np.int32), mask, trust)))
    loss, _ = method.objective(variables, batch, key, Context((), (), variables, jnp.int32(0)))

    _, share_key, partner_key, _ = jax.random.split(jax.random.fold_in(key, 2), 4)
    m = float(jax.random.beta(share_key, 0.75, 0.75))
    partner = (np.asarray(jax.random.uniform(partner_key, (BATCH,))) * 3).astype(int)
    assert 0 < m < 1

    def losses(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        output, _ = model.apply(variables, jnp.asarray(x), True, key)
        return np.asarray(optax.softmax_cross_entropy_with_integer_labels(output.logits, jnp.asarray(y)))

    mixed = m * images + (1 - m) * images[partner]
    each = losses(images, labels) + 0.7 * (m * losses(mixed, labels) + (1 - m) * losses(mixed, labels[partner]))
    np.testing.assert_allclose(loss, (each[0] + each[2]) / 2, rtol=1e-5)
