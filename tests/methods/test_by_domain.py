"""Methods that know domains: Central or FedAvg without their penalties, batches of equal parts, what they keep."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context, Setup
from fdgjax.methods import METHODS
from fdgjax.methods.mixup import mixed_images
from fdgjax.methods.parts.extend import Extended
from fdgjax.methods.parts.model_memory import MEMORY
from fdgjax.methods.parts.optimizers import optimizer, renewed
from fdgjax.objectives.by_domain import coral, pairwise_mmd
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import domain_aware, domain_by_domain
from tests.marks import mostly_slow
from tests.toy_models import CLASSES, IMAGE, tiny_model
from tests.toys import BATCH as BATCH_SIZE
from tests.toys import (
    DOMAINS,
    POOLED,
    build,
    close,
    flat,
    make_case,
    make_plan,
    shared_case,
    small_hyper,
    toy_federation,
)

COMPARING = [name for name in POOLED if name != "central"]
KINDS = jnp.asarray([0, 1, 0, 1, 1, 0], jnp.int32)
RNG = np.random.default_rng(3)
BATCH = Batch(
    jnp.asarray(RNG.uniform(-1, 1, (6, *IMAGE)), jnp.float32),
    jnp.asarray(RNG.integers(0, CLASSES, 6), jnp.int32),
    jnp.ones(6),
    domains=KINDS,
)
"""Three samples of each of two domains; the third has none."""


def value(name: str, memory: Any = None, round_: int = 2, batch: Batch = BATCH, **chosen: Any) -> Any:
    """The objective of a batch, the collections it changed, and the model's output in it."""
    return compiled(name, **chosen)(memory, batch, np.int32(round_))


@functools.cache
def compiled(name: str, **chosen: Any) -> Any:
    model = tiny_model(method=name)
    method = METHODS[name].build(Setup(model, 1, 3, domains=DOMAINS), small_hyper(name, **chosen))

    @jax.jit
    def compute(memory: Any, batch: Batch, round_: jax.Array) -> Any:
        variables = model.init(jax.random.key(0))
        output, _ = model.apply(variables, batch.inputs, True, jax.random.key(1))
        started = variables if memory is None else {**variables, MEMORY: memory}
        context = Context((), Extended((), memory), variables, round_)
        loss, changed = method.objective(started, batch, jax.random.key(1), context)
        return loss, changed, output

    return compute


def cross_entropies(logits: Any, labels: Any) -> np.ndarray:
    logits = np.asarray(logits, np.float64)
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(len(logits)), np.asarray(labels)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "distance"), [("coral", coral), ("mmd", pairwise_mmd)])
def test_without_its_penalty_the_loss_is_centrals(name: str, distance: Any) -> None:
    bare, _, output = value(name, penalty=0.0)
    np.testing.assert_allclose(bare, cross_entropies(output.logits, BATCH.labels).mean(), rtol=1e-5)
    own = jax.nn.one_hot(KINDS, DOMAINS)
    np.testing.assert_allclose(value(name, penalty=3.0)[0] - bare, 3 * distance(output.features, own), rtol=1e-3)


@pytest.mark.slow
def test_irms_penalty_grows_when_its_share_of_the_rounds_is_done() -> None:
    (early, _, output), (late, _, _) = (value("irm", penalty=5.0, anneal=0.34, round_=r) for r in (0, 1))
    bare = cross_entropies(output.logits, BATCH.labels).mean()
    assert abs(early - bare) > 1e-4
    np.testing.assert_allclose(late - bare, 5 * (early - bare), rtol=1e-3)


@pytest.mark.slow
def test_groupdro_weighs_domains_by_their_losses() -> None:
    """Algorithm 1 of Sagawa et al., two steps, in float64."""
    weights, memory = np.array([0.5, 0.5, 0.0]), {"weights": jnp.asarray([0.5, 0.5, 0.0])}
    for _ in range(2):
        found, changed, output = value("groupdro", memory, eta=0.7)
        each = cross_entropies(output.logits, BATCH.labels)
        losses = np.array([each[np.asarray(KINDS) == 0].mean(), each[np.asarray(KINDS) == 1].mean(), 0.0])
        weights = weights * np.exp(0.7 * losses)
        weights /= weights.sum()
        np.testing.assert_allclose(found, weights @ losses, rtol=1e-5)
        memory = changed[MEMORY]
        np.testing.assert_allclose(memory["weights"], weights, rtol=1e-5)


@pytest.mark.slow
def test_fishr_compares_averages_of_variances() -> None:
    """Two steps of DomainBed's moving average and distance, in float64; the domain without samples stays out."""
    before = np.zeros((2, 5, CLASSES))
    memory = {"variances": jnp.zeros((DOMAINS, 5, CLASSES))}
    for round_ in (0, 2):
        found, changed, output = value("fishr", memory, round_, penalty=10.0, anneal=0.34, ema=0.9)
        logits = np.asarray(output.logits, np.float64)
        residual = np.exp(logits) / np.exp(logits).sum(1, keepdims=True) - np.eye(CLASSES)[np.asarray(BATCH.labels)]
        inputs = np.pad(np.asarray(output.features, np.float64), ((0, 0), (0, 1)), constant_values=1)
        gradients = inputs[:, :, None] * residual[:, None, :]
        now = np.stack([gradients[np.asarray(KINDS) == d].var(axis=0) for d in (0, 1)])
        before = 0.9 * before + 0.1 * now
        corrected = before / 0.1
        penalty = np.mean([np.mean((one - corrected.mean(0)) ** 2) for one in corrected])
        plain = cross_entropies(output.logits, BATCH.labels).mean()
        np.testing.assert_allclose(found, plain + (10.0 * penalty if round_ else 0), rtol=1e-4)
        memory = changed[MEMORY]
        np.testing.assert_allclose(memory["variances"][:2], before, atol=1e-6)
        assert not np.asarray(memory["variances"][2]).any()


@pytest.mark.slow
def test_fishrs_average_of_a_domain_without_samples_stays() -> None:
    memory = {"variances": jnp.full((DOMAINS, 5, CLASSES), 0.5)}
    _, changed, _ = value("fishr", memory, penalty=10.0, anneal=0.34, ema=0.9)
    np.testing.assert_array_equal(changed[MEMORY]["variances"][2], 0.5)


@pytest.mark.slow
def test_mixup_of_a_batch_of_one_domain_is_centrals_loss_and_of_two_is_not() -> None:
    alone = BATCH._replace(domains=jnp.zeros(6, jnp.int32))
    found, _, output = value("mixup", batch=alone, alpha=1.0)
    np.testing.assert_allclose(found, cross_entropies(output.logits, alone.labels).mean(), rtol=1e-5)
    assert abs(value("mixup", alpha=1.0)[0] - found) > 1e-4


def test_mixed_images_lie_between_a_sample_and_its_partner() -> None:
    share, other = jnp.asarray([1.0, 0.0, 0.25, 0.5, 0.5, 1.0]), jnp.asarray([1, 0, 3, 2, 5, 4])
    found, images = np.asarray(mixed_images(BATCH.inputs, share, other)), np.asarray(BATCH.inputs)
    np.testing.assert_array_equal(found[[0, 1]], images[[0, 0]])
    np.testing.assert_allclose(found[2], 0.25 * images[2] + 0.75 * images[3], rtol=1e-6)


def test_batches_hold_equal_parts_of_all_domains() -> None:
    domains = jnp.asarray([0] * 9 + [1] * 3 + [2] * 6, jnp.int32)
    order = np.asarray(
        jax.jit(domain_aware, static_argnums=4)(jax.random.key(0), jnp.zeros(18, jnp.int32), domains, 18, 6)
    )
    np.testing.assert_array_equal(np.sort(np.asarray(domains)[order].reshape(6, 3), axis=1), [[0, 1, 2]] * 6)
    equal, shuffled = (build("coral", toy_federation(), batches=word).order for word in ("equal", "shuffled"))
    assert equal is domain_aware
    assert shuffled is None


def test_batches_of_a_single_domain_cycle_through_the_domains() -> None:
    domains = jnp.asarray([0] * 9 + [1] * 3 + [2] * 6, jnp.int32)
    ordered = jax.jit(domain_by_domain, static_argnums=4)(jax.random.key(0), jnp.zeros(18, jnp.int32), domains, 18, 2)
    found = np.asarray(domains)[np.asarray(ordered)].reshape(9, 2)
    np.testing.assert_array_equal(found, [[i % 3] * 2 for i in range(9)])
    for domain, many in ((0, 6), (1, 3), (2, 6)):
        assert len(set(np.asarray(ordered)[found.ravel() == domain])) == many


@pytest.mark.slow
def test_shuffled_batches_without_a_penalty_are_central_but_for_the_last_parts() -> None:
    """Where every batch is of one domain, mean over domains and over samples are one."""
    federation = toy_federation()._replace(domains=jnp.zeros_like(toy_federation().domains))
    bare = make_case(build("coral", federation, penalty=0.0, batches="shuffled"), federation)
    close(bare.advance(2), make_case(build("central", federation), federation).advance(2))


BARE = {"mmd": {"penalty": 0.0}, "vrex": {"penalty": 0.0, "anneal": 0.0}, "fishr": {"penalty": 0.0}, "groupdro": {}}
"""Without their penalties; GroupDRO weighs one domain alone."""


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(["coral", *BARE], ["vrex", "groupdro"]))
def test_at_clients_of_one_domain_and_without_a_penalty_it_is_fedavg(name: str) -> None:
    federation = toy_federation()._replace(domains=jnp.zeros_like(toy_federation().domains))
    chosen = BARE.get(name, {"penalty": 0.0}) | {"batches": "shuffled", "pooled": False, "keep_optimizer": False}
    bare = make_case(build(name, federation, **chosen), federation).advance(2).server
    close(bare, shared_case("fedavg", plan=make_plan(drop_nonfinite=True)).advance(2).server)


@pytest.mark.slow
def test_at_clients_the_penalty_compares_their_own_domains() -> None:
    federation = toy_federation()
    bare, penalised = (
        make_case(build("coral", federation, pooled=False, penalty=penalty), federation).advance(1)
        for penalty in (0.0, 5.0)
    )
    assert not np.allclose(flat(bare.server), flat(penalised.server), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(COMPARING, ["fish"]))
def test_at_clients_every_client_axis_gives_the_same(name: str) -> None:
    federation = toy_federation()
    method = build(name, federation, pooled=False)
    at_once, in_turn = (make_case(method, federation, make_plan(axis)).advance(2) for axis in ("vmap", "map"))
    close(at_once, in_turn)


@pytest.mark.slow
def test_fish_that_keeps_its_steps_is_fedavg_on_batches_of_one_domain() -> None:
    federation = toy_federation()
    same = {"pooled": False, "keep_optimizer": False}
    kept = make_case(build("fish", federation, rate=1.0, **same), federation).advance(2).server
    ordered = build("fedavg", federation)._replace(order=domain_by_domain)
    close(kept, make_case(ordered, federation).advance(2).server)
    half = make_case(build("fish", federation, **same), federation).advance(2).server
    assert not np.allclose(flat(half), flat(kept), atol=1e-4)


@pytest.mark.slow
def test_fish_keeps_the_share_of_a_set_that_the_round_leaves_unfinished() -> None:
    """A round of one step: the last of its set, or, of a client said to have two domains, the first."""
    federation, plan = toy_federation((BATCH_SIZE,)), make_plan(epochs=1)
    alone = federation._replace(domains=jnp.zeros_like(federation.domains))
    case = make_case(build("fish", alone, pooled=False), alone, plan)
    state = case.start()
    unfinished = state._replace(clients=state.clients._replace(more=state.clients.more + 1))
    close(case.round(unfinished, alone)[0].server, case.advance(1).server)


@pytest.mark.slow
def test_groupdro_begins_with_the_training_domains() -> None:
    case = make_case(build("groupdro", toy_federation()))
    state = case.start()
    np.testing.assert_array_equal(state.clients.more["weights"], [[0.5, 0.5, 0.0]])
    after = case.advance(1).clients.more["weights"]
    np.testing.assert_allclose(np.sum(after), 1, rtol=1e-6)
    assert after[0, 2] == 0
    assert after[0, 0] != 0.5


@pytest.mark.slow
def test_an_optimiser_begins_anew_once() -> None:
    adam = optimizer("adam", learning_rate=0.1)
    anew, params = renewed(adam, 2), {"w": jnp.ones(2)}
    state, plain = anew.init(params), adam.init(params)
    rng = np.random.default_rng(0)
    for step, round_ in enumerate((0, 1, 1, 2, 2, 3)):
        grads = {"w": jnp.asarray(rng.normal(size=2), jnp.float32)}
        plain = adam.init(params) if step == 3 else plain
        wanted, plain = adam.update(grads, plain, params)
        found, state = anew.update(grads, state, params, round=jnp.int32(round_))
        np.testing.assert_allclose(flat(found), flat(wanted), rtol=1e-6)


@pytest.mark.parametrize("name", COMPARING)
def test_domains_must_be_known(name: str) -> None:
    with pytest.raises(UserError, match=r"compares domains and got 0; expected a Setup with at least 2") as error:
        METHODS[name].build(Setup(tiny_model(method=name), 1, 3), small_hyper(name))
    assert "\n" not in str(error.value)
