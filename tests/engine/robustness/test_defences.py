"""Attacks change hostile clients alone, and a defence stands between the clients' messages and the method's rule."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.aggregation.robust import RobustSettings
from fdgjax.config.robustness import attack_of, defence_of, hostility, refuse_attack
from fdgjax.contract import Batch, Context, Method, PyTree
from fdgjax.engine.robustness.attacks import (
    ATTACKS,
    Attack,
    behind_backdoor,
    check_attack,
    forge,
    hostile_ids,
    is_hostile,
    open_backdoor,
    poisoned,
    with_trigger,
)
from fdgjax.engine.robustness.defences import ROBUST, Defence, bound_of, check_defence, defend
from fdgjax.engine.traffic import traffic
from fdgjax.methods import METHODS
from fdgjax.methods.fedavg import Message
from fdgjax.run.loop import round_record
from fdgjax.utils.errors import UserError
from tests.engine.robustness.test_refusals import attacked, config_of
from tests.marks import mostly_slow
from tests.toys import flat, make_case, make_plan, shared_case, shared_method

N = 5
AVERAGED = ("fedavg", "ditto", "fdse", "feddyn", "fedgma", "fedprox", "moon", "scaffold", "ssfl")


def messages(seed: int = 0) -> Message:
    rng = np.random.default_rng(seed)
    update = {"a": rng.normal(size=(N, 3)), "b": rng.normal(size=(N, 2, 2))}
    return Message(jax.tree.map(lambda leaf: leaf.astype(np.float32), update), {"own": np.ones((N, 2), np.float32)})


def vectors(tree: PyTree) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).reshape(N, -1) for leaf in jax.tree.leaves(tree)], axis=1)


def defended(defence: Defence, sent: Message, weights: np.ndarray) -> Any:
    method = shared_method("fedavg")
    return jax.device_get(jax.jit(lambda m, w: defend(method, defence, m, w))(sent, weights))


def test_a_robust_centre_is_what_the_methods_own_rule_aggregates() -> None:
    sent, weights = messages(), np.asarray([1, 2, 0, 4, 5], np.float32)
    after, verdict = defended(Defence(rule=ROBUST["median"]), sent, weights)
    centre = np.median(vectors(sent.update)[weights > 0], axis=0)
    np.testing.assert_allclose(vectors(after.update), np.where(weights[:, None] > 0, centre, 0), rtol=1e-5)
    chex.assert_trees_all_equal(after.personal, sent.personal)
    far = np.linalg.norm(vectors(sent.update) - centre, axis=1) * (weights > 0)
    np.testing.assert_allclose(verdict.distance, far, rtol=1e-5)
    assert verdict.share[2] == verdict.factor[2] == verdict.norm[2] == 0
    assert verdict.share.sum() == pytest.approx(1)


def test_mixing_comes_before_the_rule_and_shares_are_those_of_what_was_sent() -> None:
    sent = messages()
    sent.update["a"][0] += 1e3
    after, verdict = defended(Defence(rule=ROBUST["median"], mixing=True), sent, np.ones(N, np.float32))
    honest = vectors(sent.update)[1:].mean(axis=0)
    np.testing.assert_allclose(vectors(after.update), np.tile(honest, (N, 1)), rtol=1e-4, atol=1e-5)
    assert verdict.share.sum() == pytest.approx(1)
    assert verdict.share[0] < 0.01
    after, verdict = defended(Defence(rule=ROBUST["geometric_median"], mixing=True), messages(), np.ones(N, np.float32))
    of_sent = np.tile(verdict.share @ vectors(messages().update), (N, 1))
    np.testing.assert_allclose(vectors(after.update), of_sent, rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="got True without a rule"):
        defence_of(config_of(defence={"mixing": True}).defence)


@pytest.mark.parametrize("clip", ["median", "0.5"])
def test_clipping_bounds_norms_and_keeps_directions(clip: str) -> None:
    sent = messages()
    sent.update["a"][3] *= 1e6
    after, verdict = defended(Defence(bound_of(clip)), sent, np.ones(N, np.float32))
    before = np.linalg.norm(vectors(sent.update), axis=1)
    bound = np.median(before) if clip == "median" else 0.5
    np.testing.assert_allclose(np.linalg.norm(vectors(after.update), axis=1), np.minimum(before, bound), rtol=1e-5)
    np.testing.assert_allclose(vectors(after.update), verdict.factor[:, None] * vectors(sent.update), rtol=1e-5)
    np.testing.assert_allclose(verdict.norm, before, rtol=1e-5)
    assert verdict.share is None


def forged_rows(kind: str, updates: np.ndarray, honest: np.ndarray, strength: float) -> np.ndarray:
    mean, std = updates[honest].mean(axis=0), updates[honest].std(axis=0)
    known = {
        "scale": strength * updates,
        "nan": np.full_like(updates, np.nan),
        "sign_flip": -strength * updates,
        "little_is_enough": np.broadcast_to(mean - strength * std, updates.shape),
        "inner_product": np.broadcast_to(-strength * mean, updates.shape),
    }
    return known[kind]


@pytest.mark.parametrize("kind", ["scale", "nan", "sign_flip", "little_is_enough", "inner_product"])
def test_forged_updates_are_those_of_their_definitions_and_of_hostile_clients_alone(kind: str) -> None:
    sent, hostile = messages(), np.asarray([False, True, False, False, True])
    attack = Attack(ATTACKS[kind], (1, 4), 1.5)
    after = forge(attack, shared_method("fedavg"), sent, jnp.asarray(hostile), jax.random.key(0))
    wanted = forged_rows(kind, vectors(sent.update), ~hostile, 1.5)
    np.testing.assert_allclose(
        vectors(after.update), np.where(hostile[:, None], wanted, vectors(sent.update)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_noise_has_about_the_norm_that_is_asked_for() -> None:
    sent = Message({"a": np.ones((N, 4000), np.float32)}, {})
    after = forge(Attack(ATTACKS["gaussian"], (0,), 10.0), shared_method("fedavg"), sent, jnp.arange(N) == 0, KEY)
    norms = np.linalg.norm(vectors(after.update), axis=1) / np.sqrt(4000)
    np.testing.assert_allclose(norms, [10, 1, 1, 1, 1], rtol=0.1)


KEY = jax.random.key(1)


@pytest.mark.parametrize("kind", ["label_flip", "backdoor"])
@pytest.mark.parametrize("hostile", [True, False])
def test_poisoned_batches_are_those_of_hostile_clients_alone(kind: str, hostile: bool) -> None:
    images, labels = jnp.zeros((4, 8, 8, 1)), jnp.asarray([0, 1, 2, 2], jnp.int32)
    seen: list[Batch] = []

    def objective(variables: Any, batch: Batch, key: jax.Array, context: Context) -> Any:
        seen.append(batch)

    attack = Attack(ATTACKS[kind], (0,), 0.5, classes=3)
    batch, context = Batch(images, labels, jnp.ones(4)), Context({}, {}, {}, jnp.int32(1))
    poisoned(attack, objective, jnp.asarray(hostile))({}, batch._replace(extra_batch=batch), KEY, context)
    changed = {"label_flip": [2, 1, 0, 0], "backdoor": [0, 0, 2, 2]}[kind]
    assert isinstance(seen[0].extra_batch, Batch)
    for each in (seen[0], seen[0].extra_batch):
        assert np.asarray(each.labels).tolist() == (changed if hostile else labels.tolist())
        lit = np.asarray(each.inputs).sum(axis=(1, 2, 3))
        assert lit.tolist() == ([1, 1, 0, 0] if hostile and kind == "backdoor" else [0] * 4)
    assert with_trigger(jnp.zeros((16, 24, 3)))[-2:, -3:].all()


@pytest.mark.parametrize(("there", "strength", "shown"), [(8, 0.5, 4), (3, 0.5, 2), (4, 0.25, 1), (0, 0.5, 0)])
def test_a_backdoor_is_in_a_share_of_samples_and_not_of_the_padding(there: int, strength: float, shown: int) -> None:
    batch = Batch(jnp.zeros((8, 8, 8, 1)), jnp.ones(8, jnp.int32), (jnp.arange(8) < there).astype(jnp.float32))
    found = open_backdoor(batch, strength, 3)
    assert np.asarray(found.labels).tolist() == [0] * shown + [1] * (8 - shown)
    assert np.asarray(found.inputs.sum((1, 2, 3)) > 0).tolist() == [True] * shown + [False] * (8 - shown)


def test_a_backdoor_is_looked_for_behind_the_samples_of_other_classes() -> None:
    labels, there = jnp.asarray([0, 1, 2, 0, 1], jnp.int32), jnp.asarray([1.0, 1.0, 1.0, 1.0, 0.0])
    found = behind_backdoor(Batch(jnp.zeros((5, 8, 8, 1)), labels, there))
    assert np.asarray(found.mask).tolist() == [0, 1, 1, 0, 0]
    assert np.asarray(found.labels).tolist() == [0] * 5
    assert np.asarray(found.inputs.sum((1, 2, 3)) > 0).all()


@pytest.mark.slow
def test_a_client_without_numbers_is_cut_from_its_round_on_and_recorded() -> None:
    """The ids of the toy federation are 11, 14, 17 and 20."""
    attack = Attack(ATTACKS["nan"], (14,), from_round=2)
    plan = make_plan()._replace(
        attack=attack, defence=Defence(bound_of("median"), ROBUST["trimmed_mean"], RobustSettings())
    )
    case = make_case(shared_method("fedavg"), plan=plan)
    state, before = case.round(case.start(), case.federation)
    assert np.asarray(before.finite).all()
    state, info = case.round(state, case.federation)
    assert np.asarray(info.finite).tolist() == [True, False, True, True]
    assert np.isfinite(flat(state)).all()
    record = round_record(2, jax.device_get(info))
    assert record["dropped"] == [1]
    assert [factor > 0 for factor in record["defence/factor"]] == [True, False, True, True]
    assert record["defence/share"][1] == record["defence/distance"][1] == 0
    assert not [key for key in round_record(1, jax.device_get(before)._replace(verdict=None)) if "defence" in key]


@pytest.mark.slow
def test_the_noise_of_an_attack_is_drawn_anew_in_every_round() -> None:
    method = shared_method("fedavg")

    def watched(server: PyTree, clients: PyTree, messages: Message, weights: Any) -> Any:
        return method.aggregate(server, clients, messages, weights)[0], messages.update

    attack = Attack(ATTACKS["gaussian"], (14,))
    case = make_case(method._replace(aggregate=watched), plan=make_plan(epochs=1)._replace(attack=attack))
    state, units = case.start(), []
    for _ in range(2):
        state, info = case.round(state, case.federation)
        sent = flat(jax.tree.map(lambda leaf: leaf[1], info.coefficients))
        units.append(sent / np.linalg.norm(sent))
    assert abs(units[0] @ units[1]) < 6 / units[0].size ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", AVERAGED)
def test_a_method_that_averages_is_contained_by_a_robust_rule(name: str) -> None:
    """A client that sends a million times its update moves the server no further than the honest ones do."""
    moved = []
    for attack in (None, Attack(ATTACKS["scale"], (14,), 1e6)):
        plan = make_plan()._replace(attack=attack, defence=Defence(rule=ROBUST["median"]))
        case = shared_case(name, plan=plan)
        before = np.array(flat(case.start().server))
        state, _ = case.round(case.start(), case.federation)
        moved.append(np.linalg.norm(flat(state.server) - before))
    assert moved[1] < 10 * moved[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(sorted(METHODS), ("hfedf",)))
def test_clipping_works_for_every_method_and_cuts_a_client_without_numbers(name: str) -> None:
    ids = (11,) if name == "central" else (14,)
    plan = make_plan()._replace(attack=Attack(ATTACKS["nan"], ids), defence=Defence(bound_of("median")))
    case = shared_case(name, plan=plan)
    state, info = case.round(case.start(), case.federation)
    assert np.isfinite(flat(state)).all()
    assert info.verdict is not None
    if name not in ("fedproto", "local"):  # which send no update
        assert (np.asarray(info.verdict.factor) == 0).tolist() == np.isin(case.federation.ids, ids).tolist()


@pytest.mark.parametrize(("norms", "factors"), [([0, 0, 0, 4, 1], [1, 1, 1, 0.25, 1]), ([0] * 5, [1] * 5)])
def test_updates_of_norm_zero_do_not_lower_the_median_to_which_others_are_clipped(
    norms: list[float], factors: list[float]
) -> None:
    sent = Message({"a": np.array(norms, np.float32)[:, None]}, {})
    _, verdict = defend(shared_method("fedavg"), Defence(bound_of("median")), sent, jnp.ones(N))
    np.testing.assert_allclose(verdict.factor, factors, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"defence": {"clip": "mean"}}, "clip got 'mean'; expected none, median"),
        ({"defence": {"clip": "-1"}}, "clip got '-1'; expected none, median"),
        ({"defence": {"rule": "krumm"}}, "unknown defence.rule 'krumm'"),
        ({"defence": {"radius": -1.0}}, "radius got -1.0; expected at least 0"),
        ({"attack": {"kind": "flip"}}, "unknown attack.kind 'flip'"),
        ({"attack": {"ids": "0,x"}}, "ids got '0,x'; expected clients' numbers"),
        ({"attack": {"strength": np.nan}}, "strength got nan; expected a finite number"),
        ({"attack": {"from_round": 0}}, "from_round got 0; expected at least 1"),
        ({"attack": {"kind": "scale"}}, "strength got 1, with which config.attack.kind=scale changes nothing"),
        ({"attack": {"kind": "backdoor", "strength": 0.0}}, "strength got 0, with which .*=backdoor changes nothing"),
        ({"attack": {"kind": "label_flip", "strength": 7.0}}, "kind=label_flip does not use it; expected 1.0, or"),
        ({"attack": {"kind": "nan", "strength": 7.0}}, "kind=nan does not use it; expected 1.0, or"),
        ({"defence": {"rule": "krum", "radius": 3.0}}, "krum does not use it; expected 0.0, or .*=centered_clipping$"),
        ({"defence": {"rule": "median", "steps": 9}}, "expected 0, or config.defence.rule=geometric_median or cent"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        config_of(**changes)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_settings_that_a_rule_takes_change_what_it_gives() -> None:
    """And those that it does not take change nothing."""
    updates = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    other: dict[str, Any] = {"radius": 0.1, "steps": 1}
    for name, rule in ROBUST.items():
        plain, _ = rule.apply(updates, None, RobustSettings())
        for key, value in other.items():
            changed, _ = rule.apply(updates, None, RobustSettings()._replace(**{key: value}))
            assert np.array_equal(plain, changed) == (key not in rule.takes), (name, key)


def test_a_defence_needs_a_method_that_averages_and_enough_clients() -> None:
    krum = defence_of(config_of(defence={"rule": "krum"}).defence)
    assert krum
    check_defence(krum, shared_method("fedavg"), 5, updates=True)
    with pytest.raises(UserError, match="got 4 clients a round; expected at least 5"):
        check_defence(krum, shared_method("fedavg"), 4, updates=True)
    with pytest.raises(UserError, match=r"does not average its clients' updates; expected config.defence.rule=none"):
        check_defence(krum, shared_method("fedavg")._replace(averaged=False), 5, updates=True)
    check_defence(Defence(bound_of("median")), shared_method("fedavg")._replace(averaged=False), 5, updates=True)
    assert defence_of(config_of().defence) is None


def test_an_attack_is_by_some_of_the_clients_and_of_a_kind_that_training_sees() -> None:
    config = config_of(attack={"kind": "backdoor", "clients": 2, "strength": 0.5})
    attack = attack_of(config.attack, 10)
    assert attack
    assert attack.ids == (0, 1)
    assert hostile_ids(1, "3, 1") == (3, 1)
    check_attack(attack, 3, images=True, features=False, unlabelled=False, updates=True)
    for clients, images, features, unlabelled, message in (
        (2, True, False, False, r"hostile clients \[0, 1\] of 2; expected some"),
        (3, True, True, False, "expected --config.model.keep_features=False"),
        (3, False, False, False, "an attack on images, but the samples are none; expected one on labels or updates"),
        (3, True, False, True, "clients learn without labels"),
    ):
        with pytest.raises(UserError, match=message):
            check_attack(attack, clients, images=images, features=features, unlabelled=unlabelled, updates=True)
    assert np.asarray(is_hostile(attack, jnp.arange(3), jnp.int32(0))).tolist() == [True, True, False]
    shared = dataclasses.replace(config, privacy=dataclasses.replace(config.privacy, unit="sample"))
    with pytest.raises(UserError, match=r"strength got 0\.5, a share of a minibatch.*one sample at a time; expected 1"):
        attacked("fedavg", shared)
    assert attacked("fedavg", config).attack == attack
    assert hostility(config) == {"attack": dataclasses.asdict(config.attack)}
    with pytest.raises(UserError, match="expected none in a deployment"):
        refuse_attack(config)
    refuse_attack(config_of())


@pytest.mark.parametrize("name", mostly_slow(sorted(METHODS), ("fedavg", "fedgma")))
def test_a_method_that_averages_leaves_equal_updates_as_they_are(name: str) -> None:
    """So that its rule returns a robust centre, which stands in place of every client's update."""
    case = shared_case(name)
    method, state = case.method, case.advance(1)
    if not method.averaged or method.pooled:
        return
    rng, n = np.random.default_rng(0), len(case.federation.ids)
    shapes = traffic(method, case.federation).message
    sent = jax.tree.map(lambda leaf: jnp.asarray(np.abs(rng.normal(size=(n, *leaf.shape))), leaf.dtype), shapes)
    equal = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), method.updates.get(sent))
    weights = jnp.ones(n, jnp.float32)
    found, _ = method.aggregate(state.server, state.clients, method.updates.set(sent, equal), weights)
    expected = jax.tree.map(lambda leaf: leaf[0], equal)
    while not hasattr(found, "update"):
        found = found.base
    # SCAFFOLD's updates are the model's and the control variate's.
    own = expected[0] if isinstance(expected, tuple) else expected
    chex.assert_trees_all_close(found.update, own, rtol=1e-4, atol=1e-6)


def test_methods_that_do_not_average_say_so() -> None:
    assert {name for name in ("hfedf", "pfedhn", "fedomg", "fedheal", "fedfa") if averaged(name)} == set()
    assert all(averaged(name) for name in ("fedavg", "scaffold"))


def averaged(name: str) -> bool:
    method: Method = shared_method(name)
    assert name in METHODS
    return method.averaged
