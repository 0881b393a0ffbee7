"""Counts and figures against plain NumPy over all samples; batches and padding do not matter."""

import functools
import json
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Variables
from fdgjax.data.federation import Federation, Rows, pad_rows, pool
from fdgjax.engine import Execution, init_state
from fdgjax.engine.robustness.attacks import ATTACKS, TARGET, with_trigger
from fdgjax.evaluation import Metrics, Tallies, compile_evaluation, expected_calibration_error, figures, measure
from fdgjax.evaluation.tally import EvaluationSettings
from fdgjax.methods import METHODS
from tests.marks import mostly_slow
from tests.toy_models import tiny_model
from tests.toys import DOMAINS, KINDS, close, make_plan, row, shared_case, shared_method, toy_federation

ALL = sorted(METHODS)
EACH = ("fedproto", "hfedf", "pfedhn", "lgfedavg", "local")
"""The methods whose unseen domain is predicted by each client's model; for the others, by one."""
NAMES = ("north", "south", "target")


@functools.cache
def forward(name: str) -> Any:
    return jax.jit(tiny_model(method=name).apply, static_argnums=2)


class Seen(NamedTuple):
    """One model on one row of samples, in NumPy."""

    right: np.ndarray
    confidence: np.ndarray
    nll: np.ndarray
    domain: np.ndarray


def look(name: str, variables: Variables, federation: Federation, rows: np.ndarray) -> Seen:
    images = np.asarray(federation.inputs).astype(np.float32) / 127.5 - 1
    output, _ = forward(name)(variables, jnp.asarray(images), False, jax.random.key(0))
    logits = np.asarray(output.logits, np.float64)[rows]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    labels = np.asarray(federation.labels)[rows]
    nll = -np.log(p[np.arange(len(rows)), labels])
    return Seen(p.argmax(axis=1) == labels, p.max(axis=1), nll, np.asarray(federation.domains)[rows])


def calibration(seen: list[Seen]) -> float:
    """`sum_b |B_b| / n |accuracy(B_b) - confidence(B_b)|` over 15 bins of equal width (Guo et al., 2017)."""
    right, confidence = (np.concatenate([getattr(s, name) for s in seen]) for name in ("right", "confidence"))
    error = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return error


def by_confidence(seen: Seen) -> dict[str, list[float]]:
    """Samples, right ones and confidence in each of 15 bins of equal width."""
    edges = np.arange(16) / 15
    weights = {"count": np.ones(len(seen.right)), "correct": seen.right, "confidence": seen.confidence}
    return {
        name: np.histogram(seen.confidence, edges, weights=np.asarray(each, np.float64))[0].tolist()
        for name, each in weights.items()
    }


def pooled(models: list[Seen]) -> Seen:
    return Seen(*(np.concatenate(column) for column in zip(*models, strict=True)))


def expected(source: list[Seen], test: list[Seen], target: list[Seen]) -> Metrics:
    """The figures, those of an empty list absent."""
    ood = float(np.mean([s.right.mean() for s in target])) if target else None
    shown, held_out = pooled(test or source), pooled(source)
    domains = {NAMES[d]: float(shown.right[shown.domain == d].mean()) for d in np.unique(shown.domain)}
    domains |= {} if ood is None else {NAMES[DOMAINS - 1]: ood}
    return Metrics(
        id_accuracy=float(np.mean([s.right.mean() for s in source])),
        id_all_accuracy=float(np.concatenate([s.right for s in source]).mean()),
        ood_accuracy=ood,
        ood_adapted_accuracy=None,
        all_accuracy=float(shown.right.mean()) if test else None,
        avg_accuracy=float(np.mean([s.right.mean() for s in test])) if test else None,
        per_domain_accuracy=domains,
        worst_domain_accuracy=min(domains.values()),
        client_accuracy={str(i): float(s.right.mean()) for i, s in enumerate(test or source)},
        ece=calibration(target or test),
        id_ece=calibration(source),
        calibration=by_confidence(pooled(target or test)),
        id_loss=float(np.mean(held_out.nll)),
        ood_loss=float(np.mean(np.concatenate([s.nll for s in target]))) if target else None,
    )


ONE_BY_ONE = Execution("map")


@functools.cache
def trained(name: str) -> Any:
    return shared_case(name, plan=make_plan(drop_nonfinite=True)).advance(1)


@functools.cache
def evaluation(name: str, batch_size: int, execution: Execution) -> Any:
    method = shared_case(name, plan=make_plan(drop_nonfinite=True)).method
    return compile_evaluation(
        method, tiny_model(method=name), EvaluationSettings(batch_size, 4, execution), domains=DOMAINS
    )


def evaluate(
    name: str, batch_size: int, execution: Execution = ONE_BY_ONE, federation: Federation | None = None
) -> Metrics:
    tallies = tallies_of(name, federation or toy_federation(), batch_size, execution)
    return measure(jax.device_get(tallies), NAMES)


def tallies_of(name: str, federation: Federation, batch_size: int = 4, execution: Execution = ONE_BY_ONE) -> Tallies:
    return evaluation(name, batch_size, execution)(trained(name), federation)


def same(left: Metrics, right: Metrics) -> None:
    assert figures(left).keys() == figures(right).keys()
    chex.assert_trees_all_close(figures(left), figures(right), rtol=1e-4, atol=1e-6)


NOTHING = pad_rows([np.zeros(0, np.int64)])


@functools.cache
def federations() -> dict[str, Federation]:
    """The toy federation as the protocols would have it: test rows beside the others, or no unseen domain."""
    federation = toy_federation()
    places, lengths = map(np.asarray, federation.train)
    # Any rows will do; clients differ in how many they have, which tells ALL from AVG.
    tested = federation._replace(test=pad_rows([row[: 1 + n // 2] for row, n in zip(places, lengths, strict=True)]))
    return {
        "leave_one_out": federation,
        "unseen_client": tested,
        "every_domain": tested._replace(target=NOTHING),
    }


CASES = [
    *((name, "leave_one_out") for name in KINDS),
    *((name, "unseen_client") for name in ("fedavg", "local", "central")),
    *((name, "every_domain") for name in ("fedavg", "local", "central")),
]
QUICKLY = [case for case in CASES if case[0] in ("fedavg", "local", "fdse")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "protocol"), mostly_slow(CASES, QUICKLY))
def test_all_figures_are_those_of_plain_numpy(name: str, protocol: str) -> None:
    federation, state = federations()[protocol], trained(name)
    method = shared_case(name, plan=make_plan(drop_nonfinite=True)).method

    def of_clients(table: Rows) -> list[Seen]:
        seen = []
        for client, (rows, length) in enumerate(zip(*map(np.asarray, table), strict=True)):
            own = row(state.clients, 0 if method.pooled else client)
            seen += [look(name, method.predict(state.server, own), federation, rows[:length])] if length else []
        return seen

    models = method.unseen(state.server, state.clients)
    many = len(jax.tree.leaves(models)[0])
    whole = np.asarray(federation.target.places)[0, : int(federation.target.length[0])]
    target = [look(name, row(models, i), federation, whole) for i in range(many)] if len(whole) else []
    # Adaptation has tests of its own.
    got = evaluate(name, batch_size=4, federation=federation)._replace(ood_adapted_accuracy=None)
    same(got, expected(of_clients(federation.validation), of_clients(federation.test), target))
    assert ("ood_accuracy" in figures(got)) == (protocol != "every_domain")
    assert ("all_accuracy" in figures(got)) == ("avg_accuracy" in figures(got)) == (protocol != "leave_one_out")


@pytest.mark.slow
def test_a_backdoors_success_is_the_share_of_other_classes_that_are_taken_for_its_own() -> None:
    federation, state = toy_federation(), trained("fedavg")
    method = shared_case("fedavg", plan=make_plan(drop_nonfinite=True)).method
    observe = compile_evaluation(
        method,
        tiny_model(method="fedavg"),
        EvaluationSettings(4, 4, ONE_BY_ONE),
        domains=DOMAINS,
        attacked=ATTACKS["backdoor"].wanted,
    )
    got = measure(jax.device_get(observe(state, federation)), NAMES)
    rows = np.asarray(federation.target.places)[0, : int(federation.target.length[0])]
    others = rows[np.asarray(federation.labels)[rows] != TARGET]
    assert 0 < len(others) < len(rows)
    images = np.asarray(federation.inputs).astype(np.float32) / 127.5 - 1
    behind = np.asarray(with_trigger(jnp.asarray(images)))[others]
    output, _ = forward("fedavg")(
        row(method.unseen(state.server, state.clients), 0), jnp.asarray(behind), False, jax.random.key(0)
    )
    assert got.attack_success == pytest.approx(np.mean(np.argmax(output.logits, axis=1) == TARGET))
    same(got._replace(attack_success=None), evaluate("fedavg", 4))


@pytest.mark.parametrize("name", ALL)
def test_the_unseen_domain_is_predicted_by_one_model_or_by_each_clients(name: str) -> None:
    method, federation = shared_method(name), toy_federation()
    trained = pool(federation) if method.pooled else federation
    state = jax.eval_shape(functools.partial(init_state, method), trained, 0)
    models = jax.eval_shape(method.unseen, state.server, state.clients)
    many = len(trained.ids) if name in EACH else 1
    assert {leaf.shape[0] for leaf in jax.tree.leaves(models)} == {many}


@pytest.mark.slow
@pytest.mark.parametrize("execution", [Execution("vmap"), Execution("chunk", 3), Execution("map", devices=3)])
def test_test_samples_are_counted_on_every_client_axis(execution: Execution) -> None:
    federation = federations()["unseen_client"]
    same(evaluate("local", 4, execution, federation), evaluate("local", 4, federation=federation))


@pytest.mark.slow
def test_nothing_is_divided_by_nothing() -> None:
    nothing = jax.tree.map(lambda leaf: leaf * 0, jax.device_get(tallies_of("local", federations()["every_domain"])))
    with np.errstate(all="raise"):
        assert figures(measure(nothing, NAMES)) == {"per_domain_accuracy": {}, "client_accuracy": {}}
        assert expected_calibration_error(nothing.source) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch_size", "execution"),
    [
        ("local", 1, Execution("map")),
        ("fedavg", 3, Execution("vmap")),
        ("local", 100, Execution("chunk", 3)),
        ("fedavg", 4, Execution("map", devices=3)),
        ("local", 4, Execution("chunk", 2, devices=2)),
        ("central", 4, Execution("vmap", devices=3)),
    ],
)
def test_batches_and_the_client_axis_do_not_matter(name: str, batch_size: int, execution: Execution) -> None:
    same(evaluate(name, batch_size, execution), evaluate(name, 4))


@pytest.mark.slow
def test_no_batch_is_larger_than_the_longest_row() -> None:
    model, federation, seen = tiny_model(method="fedavg"), federations()["unseen_client"], set[int]()

    def apply(variables: Variables, images: jax.Array, train: bool, key: jax.Array) -> Any:
        seen.add(len(images))
        return model.apply(variables, images, train, key)

    method = shared_method("fedavg")
    evaluated = compile_evaluation(
        method,
        model._replace(apply=apply),
        EvaluationSettings(100, 100, Execution("map")),
        domains=DOMAINS,
    )
    jax.eval_shape(evaluated, trained("fedavg"), federation)
    rows = (federation.validation, federation.test, federation.target)
    assert seen <= {max(len(one) for one in (rows[0].places[0], rows[1].places[0])), len(rows[2].places[0])}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "local"])
def test_padding_does_not_matter(name: str) -> None:
    federation = toy_federation()

    def longer(rows: Rows) -> Rows:
        padded = np.full((len(rows.length), rows.places.shape[1] + 3), 5)
        for client, length in enumerate(rows.length):
            padded[client, :length] = rows.places[client, :length]
        return Rows(jnp.asarray(padded, jnp.int32), rows.length)

    padded = federation._replace(validation=longer(federation.validation), target=longer(federation.target))
    same(evaluate(name, 4, federation=padded), evaluate(name, 4))


@pytest.mark.slow
def test_every_sample_is_counted_once_in_its_domain() -> None:
    federation = federations()["unseen_client"]
    tallies = tallies_of("local", federation)
    np.testing.assert_array_equal(tallies.test.total.sum(axis=1), federation.test.length)
    for client, (rows, length) in enumerate(zip(*map(np.asarray, federation.validation), strict=True)):
        domains = np.asarray(federation.domains)[rows[:length]]
        np.testing.assert_array_equal(tallies.source.total[client], np.bincount(domains, minlength=DOMAINS))
    np.testing.assert_array_equal(tallies.target.total, [[0, 0, 7]] * 4)
    assert tallies.adapted is None
    for part in tallies[:3]:
        np.testing.assert_array_equal(part.bin_count.sum(axis=-1), part.total.sum(axis=-1))
        np.testing.assert_array_equal(part.bin_correct.sum(axis=-1), part.correct.sum(axis=-1))


@pytest.mark.slow
def test_certain_and_right_is_calibrated_certain_and_wrong_is_not() -> None:
    state = trained("fedavg")
    params = state.server.variables["params"]
    sure = jax.tree.map(jnp.zeros_like, params)
    sure["linear_2"]["bias"] = jnp.asarray([100.0, 0.0, 0.0])
    server = state.server._replace(variables={"params": sure})
    for label, error in ((0, 0.0), (1, 1.0)):
        federation = toy_federation()
        federation = federation._replace(labels=jnp.full_like(federation.labels, label))
        counts = evaluation("fedavg", 4, ONE_BY_ONE)(state._replace(server=server), federation)
        got = measure(jax.device_get(counts), NAMES)
        assert [got.ece, got.id_ece] == pytest.approx([error] * 2, abs=1e-6)
        assert [got.ood_accuracy, got.id_accuracy] == [1 - error] * 2


@pytest.mark.slow
def test_predictions_that_are_nan_are_wrong_whatever_the_label() -> None:
    state, federation = trained("fedavg"), toy_federation()
    nothing = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), state.server.variables)
    for label in range(3):
        labelled = federation._replace(labels=jnp.full_like(federation.labels, label))
        broken = state._replace(server=state.server._replace(variables=nothing))
        got = measure(jax.device_get(evaluation("fedavg", 4, ONE_BY_ONE)(broken, labelled)), NAMES)
        assert (got.ood_accuracy, got.id_accuracy) == (0, 0)
        assert "ood_accuracy" in json.loads(json.dumps(figures(got), allow_nan=False))
        assert not {"id_loss", "ood_loss"} & set(figures(got))


@pytest.mark.slow
def test_dropout_is_off_and_statistics_are_the_running_ones() -> None:
    for model in ("dropout", "norm"):
        variables = tiny_model(model).init(jax.random.key(0))
        images = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4, 4, 1)), jnp.float32)
        outs = [tiny_model(model).apply(variables, images, False, jax.random.key(k)) for k in (1, 2)]
        close(outs[0][0].logits, outs[1][0].logits, rtol=0, atol=0)
        assert outs[0][1] == {}
        alone, _ = tiny_model(model).apply(variables, images[:1], False, jax.random.key(0))
        close(alone.logits, outs[0][0].logits[:1], rtol=1e-5)
