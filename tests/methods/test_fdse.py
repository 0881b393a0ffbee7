"""FDSE's and FedBN's own laws: fates of the variables, the three switches of Table 3, label-free adaptation."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.aggregation import attention, min_norm
from fdgjax.contract import Model, Setup
from fdgjax.data.federation import Federation
from fdgjax.engine.loops import dynamic_loop
from fdgjax.engine.traffic import traffic
from fdgjax.evaluation.adaptation import adapt
from fdgjax.methods import METHODS
from fdgjax.methods.fdse import label
from fdgjax.methods.fedavg import Message
from fdgjax.methods.parts.extend import Extended
from fdgjax.utils.variables import flatten, label_table, select
from tests.engine.plain import PlainRound
from tests.toy_models import tiny_model
from tests.toys import (
    CLIENTS,
    FULL_LENGTHS,
    build,
    by_numpy,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    row,
    shared_case,
    small_hyper,
    toy_federation,
)

OFF = {"consensus": "mean", "personalisation": "mean", "consistency": "none"}
WHOLE = make_plan(drop_nonfinite=True)


@pytest.mark.slow
def test_without_its_rules_it_is_averaging() -> None:
    """Nothing but BN_dse's statistics, which training does not read, then differs from FedAvg on the same model."""
    federation = toy_federation(FULL_LENGTHS)
    bare = make_case(build("fdse", federation, weighting="samples", **OFF), federation)
    model = tiny_model(method="fdse")
    fedavg = METHODS["fedavg"].build(Setup(model, CLIENTS, 3), METHODS["fedavg"].hyper(**shared_settings()))
    found, wanted = bare.advance(2), make_case(fedavg, federation).advance(2)
    params = {**flatten({"params": found.server.variables["params"]}), **flatten(row_of(found.clients.base.personal))}
    close(params, flatten({"params": wanted.server.variables["params"]}))


def shared_settings() -> dict[str, Any]:
    small = small_hyper("fdse")
    names = ("optimizer", "learning_rate", "weight_decay", "momentum", "learning_rate_decay", "clip")
    return {f"client_{name}": getattr(small, f"client_{name}") for name in names}


def row_of(stacked: Any) -> Any:
    """One row of stacked values that are all alike."""
    jax.tree.map(lambda leaf: np.testing.assert_allclose(leaf, leaf[:1].repeat(len(leaf), 0), rtol=1e-5), stacked)
    return jax.tree.map(lambda leaf: leaf[0], stacked)


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["consensus", "personalisation", "consistency"])
def test_every_switch_matters(switch: str) -> None:
    whole, without = shared_case("fdse", plan=WHOLE), build("fdse", toy_federation(), **{switch: OFF[switch]})
    state, other = whole.advance(1), make_case(without, whole.federation).advance(1)
    assert not np.allclose(flat((state.server, state.clients)), flat((other.server, other.clients)), atol=1e-5)


@pytest.mark.slow
def test_the_official_term_is_carried_through_a_round_and_no_further() -> None:
    federation = toy_federation(FULL_LENGTHS)
    method = build("fdse", federation, consistency="official", first_round=1)
    case, paper = make_case(method, federation, WHOLE), shared_case("fdse", plan=WHOLE)
    chex.assert_trees_all_equal_shapes(case.start(), paper.start())
    ours, theirs = (traffic(one, federation) for one in (method, paper.method))
    assert (ours.sent, ours.message) == (theirs.sent, theirs.message)
    assert label_table(ours.received, method.label)["carried/mean"] == "local"
    state, round_ = case.start(), PlainRound(method, WHOLE.batching)
    for _ in range(2):
        wanted, _ = round_(copy(state), federation, case.everyone)
        state, _ = case.round(state, federation)
        close((state.server, state.clients), (wanted.server, wanted.clients), rtol=1e-3, atol=1e-5)
    without = make_case(build("fdse", federation, consistency="none"), federation, WHOLE)
    close(without.advance(1), case.advance(1))
    assert not np.allclose(flat(without.advance(2).server), flat(case.advance(2).server), atol=1e-4)


@pytest.mark.slow
def test_shared_by_consensus_personal_by_similarity_statistics_plainly() -> None:
    method, federation = build("fdse", toy_federation()), toy_federation()
    server, clients = jax.jit(method.init)(jax.random.key(0), federation)
    rng = np.random.default_rng(0)
    shared = server.variables
    stacked = lambda tree: jax.tree.map(  # noqa: E731
        lambda leaf: rng.normal(size=(CLIENTS, *leaf.shape)).astype(np.float32), tree
    )
    own = stacked(row(clients.base.personal, 0))
    messages = Message(stacked(shared), own)
    weights = method.weights(jnp.asarray([5, 8, 1, 9]))
    step, _ = jax.jit(method.aggregate)(server, with_personal(clients, own), messages, weights)
    consensus, _ = jax.jit(min_norm)(messages.update["params"])
    close(step.update["params"], consensus, rtol=1e-5)
    close(step.update["batch_stats"], by_numpy(lambda x: x.mean(0), messages.update["batch_stats"]), rtol=1e-5)
    close(step.personal, jax.jit(functools.partial(attention, tau=0.5))(own)[0], rtol=1e-5)
    for path, one in flatten(step.update["params"]).items():
        products = np.asarray(flatten(messages.update["params"])[path]).reshape(CLIENTS, -1) @ np.ravel(one)
        assert (products > -1e-4).all(), "a step that harms a client"


@pytest.mark.slow
def test_a_client_without_weight_keeps_its_own_and_is_seen_by_nobody() -> None:
    method = build("fdse", toy_federation())
    server, clients = method.init(jax.random.key(0), toy_federation())
    own = jax.tree.map(
        lambda leaf: np.arange(1, 1 + leaf.size, dtype=np.float32).reshape(leaf.shape), clients.base.personal
    )
    message = Message(jax.tree.map(lambda x: np.ones((CLIENTS, *x.shape), np.float32), server.variables), own)
    weights = jnp.asarray([1.0, 0.0, 1.0, 1.0])
    outcomes, aggregate = [], jax.jit(method.aggregate)
    for lost in (1.0, 50.0):
        sent = message._replace(
            personal=jax.tree.map(lambda leaf, c=lost: np.concatenate([leaf[:1], c * leaf[1:2], leaf[2:]]), own)
        )
        outcomes.append(aggregate(server, with_personal(clients, own), sent, weights)[0].personal)
    chex.assert_trees_all_equal(*outcomes)
    chex.assert_trees_all_equal(*(jax.tree.map(lambda leaf: leaf[1], tree) for tree in (outcomes[0], own)))


def with_personal(clients: Extended, personal: Any) -> Extended:
    return clients._replace(base=clients.base._replace(personal=personal))


def test_the_fates_of_the_block() -> None:
    fates = {
        "params/conv_1/dfe/kernel": "shared",
        "params/conv_1/bn_dfe/scale": "shared",
        "params/conv_1/bias": "shared",
        "params/head/kernel": "shared",
        "params/conv_1/dse/kernel": "personal",
        "params/conv_1/bn_dse/scale": "personal",
        "batch_stats/conv_1/bn_dse/mean": "local",
        "batch_stats/conv_1/bn_dfe/mean": "shared",
        "batch_stats/stem/bn/var": "shared",
    }
    assert {path: label(path) for path in fates} == fates


def fitted(name: str, federation: Federation, model: str = "dense", **chosen: Any) -> tuple[Any, Any, Any]:
    """The method, one model for the unseen domain after a round, and the same adapted to it."""
    method = build(name, toy_federation(), model, **chosen)
    state = make_case(method).advance(1)
    before = jax.tree.map(lambda leaf: leaf[0], method.unseen(state.server, state.clients))
    rows = jax.tree.map(lambda leaf: leaf[0], federation.target)
    return method, before, adapted(method, before, federation, rows)


def adapted(method: Any, before: Any, federation: Federation, rows: Any) -> Any:
    how = {"batch_size": 4, "round_": jnp.int32(1), "key": jax.random.key(1), "repeat": dynamic_loop}

    def run(before: Any, federation: Federation, rows: Any) -> Any:
        return adapt(method.adapt, before, rows, federation=federation, **how)

    return jax.jit(run)(before, federation, rows)


@pytest.mark.slow
def test_fdses_adaptation_changes_the_erasers_alone_and_sees_no_label() -> None:
    federation = toy_federation()
    method, before, after = fitted("fdse", federation, adaptation_epochs=3)
    chex.assert_trees_all_equal(select(after, label, "shared"), select(before, label, "shared"))
    for path, leaf in flatten(select(after, label, "personal", "local")).items():
        assert not np.allclose(leaf, flatten(before)[path], atol=1e-7), path
    relabelled = federation._replace(labels=(federation.labels + 1) % 3)
    rows = jax.tree.map(lambda leaf: leaf[0], federation.target)
    chex.assert_trees_all_equal(adapted(method, before, relabelled, rows), after)


@pytest.mark.slow
def test_fdses_adaptation_brings_the_statistics_nearer() -> None:
    """The features of a batch of the unseen domain have statistics nearer to the global ones than before."""
    federation = toy_federation()
    _, before, after = fitted("fdse", federation, adaptation_epochs=20, adaptation_learning_rate=0.5)
    model: Model = tiny_model(method="fdse")
    images = jnp.asarray(federation.inputs[np.asarray(federation.target.places)[0]], jnp.float32) / 127.5 - 1
    gaps = []
    for variables in (before, after):
        _, changed = model.apply(variables, images, True, jax.random.key(0))
        gaps.append(
            np.abs(
                flat(changed["batch_stats"]["linear_1"]["bn_dfe"])
                - flat(variables["batch_stats"]["linear_1"]["bn_dfe"])
            ).mean()
        )
    assert gaps[1] < gaps[0]


@pytest.mark.slow
def test_fedbns_adaptation_collects_statistics_and_nothing_else() -> None:
    federation = toy_federation()
    _, before, after = fitted("fedbn", federation, "norm", adaptation_epochs=1)
    chex.assert_trees_all_equal(after["params"], before["params"])
    images = np.asarray(federation.inputs, np.float32)[np.asarray(federation.target.places)[0]] / 127.5 - 1
    first = flatten(before["params"])
    features = images.reshape(len(images), -1) @ np.asarray(first["linear_1/kernel"]) + np.asarray(
        first["linear_1/bias"]
    )
    moved, was = (np.asarray(v["batch_stats"]["norm"]["mean"]) for v in (after, before))
    # Two steps with the layer's momentum of 0.8 leave 0.64 of what was.
    low, high = (0.64 * was + 0.36 * bound for bound in (features.min(0), features.max(0)))
    assert ((moved >= low - 1e-5) & (moved <= high + 1e-5)).all()
    assert not np.allclose(moved, was)


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 5])
def test_fedbns_statistics_come_as_near_as_their_momentum_takes_them(epochs: int) -> None:
    """The domain is one batch: received statistics count momentum^epochs, that batch's the rest."""
    federation = toy_federation(unseen=4)
    _, before, after = fitted("fedbn", federation, "norm", adaptation_epochs=epochs)
    images = np.asarray(federation.inputs, np.float32)[np.asarray(federation.target.places)[0]] / 127.5 - 1
    layer = before["params"]["linear_1"]
    features = images.reshape(len(images), -1) @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])
    for name, seen in (("mean", features.mean(0)), ("var", features.var(0))):
        was, now = (np.asarray(v["batch_stats"]["norm"][name]) for v in (before, after))
        np.testing.assert_allclose(now, 0.8**epochs * was + (1 - 0.8**epochs) * seen, rtol=1e-4, atol=1e-5)


def test_fedbn_and_fdse_adapt_for_as_long() -> None:
    assert {METHODS[name].hyper(name=name).adaptation_epochs for name in ("fdse", "fedbn")} == {5}


@pytest.mark.slow
def test_fedbn_without_batchnorm_is_fedavg_and_does_not_adapt() -> None:
    fedbn, fedavg = shared_case("fedbn", plan=WHOLE), shared_case("fedavg", plan=WHOLE)
    close(fedbn.advance(2), fedavg.advance(2))
    assert fedbn.method.adapt is None


@pytest.mark.parametrize(("name", "model"), [("fdse", "dense"), ("fedbn", "norm")])
def test_no_epochs_of_adaptation_are_none(name: str, model: str) -> None:
    assert build(name, toy_federation(), model, adaptation_epochs=0).adapt is None
    assert build(name, toy_federation(), model, adaptation_epochs=1).adapt is not None
