"""Regression: labels that are numbers, from data to figures, beside scikit-learn's; and what is refused."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score, root_mean_squared_error

import fdgjax
from fdgjax.data.encoding import SMALLEST
from fdgjax.data.federation import Partition, pool
from fdgjax.data.numeric_labels import LabelScale, label_scale
from fdgjax.data.sources.arrays import domains_of
from fdgjax.data.sources.domains import Domains
from fdgjax.engine import compile_round, init_state
from fdgjax.evaluation.error_sums import ErrorSums
from fdgjax.evaluation.figure_kinds import in_table, larger_is_better
from fdgjax.evaluation.number_figures import NUMBER_FIGURES, Errors, mean_of, measure_numbers
from fdgjax.evaluation.selection import reported
from fdgjax.evaluation.statistics import Spread
from fdgjax.evaluation.tally import Tallies
from fdgjax.methods import METHODS
from fdgjax.objectives.cross_entropy import label_losses
from fdgjax.sweeps.comparison import Measured, as_row, csv_cells, mean_and_deviation
from fdgjax.utils.errors import UserError
from tests.hospitals import write_hospitals
from tests.marks import mostly_slow
from tests.toys import build, lengths_for, make_plan, toy_federation

NEED_CLASSES = (
    *("fedadg", "fedccrl", "fedclip", "fediir", "fedlgf", "fedproto", "fedsr", "fishr", "fpl", "irm", "stablefdg"),
)
KEYS: dict[str, Any] = {"task": "regression", "devices": 1, "rounds": 1}


def sites(rows: int = 40, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Two sites of a linear relation with noise, in a unit far from 0 and 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (2, rows, 3)).astype(np.float32)
    y = 500 + 30 * (x @ np.array([1.0, -2.0, 0.5])) + rng.normal(0, 5, (2, rows))
    return {"one": (x[0], y[0]), "two": (x[1], y[1])}


@pytest.fixture(scope="module")
def trained() -> fdgjax.Result:
    experiment = fdgjax.experiment(
        "fedavg",
        data=sites(),
        model="linear",
        target="two",
        local_epochs=40,
        batch_size=64,
        data__validation=0.3,
        data__protocol="leave_one_out",
        method__client_optimizer="sgd",
        method__client_learning_rate=0.1,
        **KEYS | {"rounds": 5},
    )
    return experiment.train()


@given(
    st.lists(
        st.lists(st.floats(-1e6, 1e6, width=32, allow_subnormal=False), min_size=1, max_size=9), min_size=1, max_size=4
    )
)
def test_the_clients_scale_of_labels_is_that_of_all_their_labels(each: list[list[float]]) -> None:
    labels = np.concatenate([np.array(own, np.float32) for own in each])
    ends = np.cumsum([len(own) for own in each])
    scale = label_scale(labels, np.split(np.arange(len(labels)), ends[:-1]))
    exact = labels.astype(np.float64)
    np.testing.assert_allclose(scale.mean, exact.mean(), rtol=1e-5, atol=1e-6 * np.abs(exact).max())
    if exact.std() > max(1e-4 * np.abs(exact).max(), SMALLEST):
        np.testing.assert_allclose(scale.deviation, exact.std(), rtol=1e-4)
    own = scale.in_units(scale.standardised(labels))  # type: ignore[arg-type]  # JAX would compile for each length
    np.testing.assert_allclose(own, labels, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


@pytest.mark.slow
def test_losses_of_numbers_are_squared_errors_and_those_of_classes_stay() -> None:
    rng = np.random.default_rng(0)
    outputs, numbers = jnp.asarray(rng.normal(size=(6, 1))), jnp.asarray(rng.normal(size=6))
    squared = mean_squared_error(numbers, outputs[:, 0])
    np.testing.assert_allclose(np.mean(label_losses(outputs, numbers)), squared, rtol=1e-6)
    logits, classes = jnp.asarray(rng.normal(size=(6, 3))), jnp.arange(6, dtype=jnp.int32) % 3
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, classes)
    np.testing.assert_array_equal(label_losses(logits, classes), expected)


@pytest.mark.slow
def test_one_client_with_a_linear_network_finds_least_squares(trained: fdgjax.Result) -> None:
    data, own = trained.data, trained.built.parts[0].train[0]
    exact = LinearRegression().fit(data.inputs[own], data.labels[own])
    np.testing.assert_allclose(trained.predict(data.inputs), exact.predict(data.inputs), rtol=0, atol=0.05)


@pytest.mark.slow
def test_figures_are_those_of_scikit_learn(trained: fdgjax.Result) -> None:
    data, part, found = trained.data, trained.built.parts[0], trained.summary
    for scope, rows in (("id", part.validation[0]), ("ood", part.target)):
        y, p = data.labels[rows], trained.predict(data.inputs[rows])
        for name, of in (("rmse", root_mean_squared_error), ("r2", r2_score), ("mae", mean_absolute_error)):
            np.testing.assert_allclose(found[f"{scope}_{name}"], of(y, p), rtol=1e-4)
    assert found["per_domain_rmse"] == {"one": found["id_all_rmse"], "two": found["ood_rmse"]}
    assert found["worst_domain_r2"] == min(found["per_domain_r2"].values())
    assert found["worst_domain_rmse"] == max(found["per_domain_rmse"].values())
    assert not any("accuracy" in key for key in found)
    with pytest.raises(UserError, match="no classes with probabilities; expected predict"):
        trained.predict_proba(data.inputs)


def test_figures_are_those_of_scikit_learn_where_clients_mix_domains() -> None:
    rng, scale = np.random.default_rng(0), LabelScale(np.float32(4), np.float32(3))
    labels, domains = rng.normal(5, 2, 60).astype(np.float32), np.repeat([0, 1, 2], 20)
    data = Domains(np.zeros((60, 1), np.float32), labels, domains, ("a", "b", "c"), ("dose",))
    rows = np.split(rng.permutation(40), [15])
    nothing = np.zeros(0, int)
    part = Partition([nothing] * 2, rows, [nothing] * 2, np.arange(40, 60), nothing)
    outputs: Any = rng.normal(size=(2, 60))

    def sums(model: int, own: np.ndarray) -> ErrorSums:
        apart = np.abs(outputs[model, own] - scale.standardised(labels[own]))
        counted: Any = [np.bincount(domains[own], each, 3) for each in (apart**2, apart)]
        return ErrorSums(*counted)

    def stacked(each: list[ErrorSums]) -> Any:
        return jax.tree.map(lambda *leaves: np.stack(leaves), *each)

    source, target = stacked([sums(i, rows[i]) for i in range(2)]), stacked([sums(i, part.target) for i in range(2)])
    nothing_tested: Any = ErrorSums(*np.zeros((2, 2, 3)))
    tallies = Tallies(source, nothing_tested, target, None)
    found = measure_numbers(tallies, data, part, scale)
    own = np.full(60, -1)
    own[rows[0]], own[rows[1]] = 0, 1
    predicted = scale.in_units(outputs)

    def by(of: Any, model: Any, where: np.ndarray) -> float:
        return of(labels[where], predicted[model, where])

    for name, of in (("rmse", root_mean_squared_error), ("r2", r2_score), ("mae", mean_absolute_error)):
        unseen = np.mean([by(of, i, part.target) for i in range(2)])
        a, b, both = (by(of, own[held], held) for held in (np.arange(20), np.arange(20, 40), np.arange(40)))
        assert found[f"per_domain_{name}"] == pytest.approx({"a": a, "b": b, "c": unseen}, rel=1e-5)
        assert found[f"client_{name}"] == pytest.approx({str(i): by(of, i, rows[i]) for i in range(2)}, rel=1e-5)
        assert found[f"id_all_{name}"] == pytest.approx(both, rel=1e-5)
        assert found[f"ood_{name}"] == pytest.approx(unseen, rel=1e-5)
    outputs[0, part.target] = np.nan
    diverged = measure_numbers(
        tallies._replace(target=stacked([sums(i, part.target) for i in range(2)])), data, part, scale
    )
    of_target = {f"{scope}_{name}" for scope in ("ood", "per_domain", "worst_domain") for name in NUMBER_FIGURES}
    assert diverged == {key: value for key, value in found.items() if key not in of_target}


def test_the_smallest_error_is_selected() -> None:
    records = [{"round": i, "id_rmse": value, "ood_rmse": -value} for i, value in enumerate((2.0, 1.0, 3.0))]
    assert [reported(records, rule)["round"] for rule in ("validation", "oracle", "last")] == [1, 2, 2]
    assert [larger_is_better(key) for key in ("id_rmse", "ood_mae", "per_domain_r2.one")] == [False, False, True]


def test_a_single_label_has_an_error_but_no_r2() -> None:
    one = Errors(samples=3, squared=12.0, absolute=6.0, spread=0.0)
    assert [figure.of(one) for figure in NUMBER_FIGURES.values()] == [2.0, None, 2.0]
    assert mean_of(NUMBER_FIGURES["r2"], [one, one._replace(spread=24.0)]) == 0.5


def refused(words: str, name: str = "fedavg", **keys: Any) -> None:
    with pytest.raises(UserError, match=words) as error:
        fdgjax.experiment(name, **{"data": sites(), "model": "mlp", **KEYS, **keys})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", NEED_CLASSES)
def test_a_method_that_uses_classes_is_refused(name: str) -> None:
    refused(f"'{name}' got labels that are numbers.*expected config.task=classification, or a method", name)


def test_what_else_needs_classes_is_refused(tmp_path: Path) -> None:
    refused("gap=accuracy is of classes", "feddg_ga", method__gap="accuracy", data=sites() | {"three": sites()["one"]})
    refused("'fedsimclr' learns without labels", "fedsimclr")
    refused("protocol 'labelled_server' makes pseudo-labels", data__protocol="labelled_server")
    refused("config.figures got 'auroc'", figures="auroc")
    # The preset asks for figures of probabilities, which a regression leaves out without a word.
    where = str(write_hospitals(tmp_path))
    table: Any = {"name": "fedavg:table", "data": None, "data__dir": where, "data__label": "age"}
    by_figure = "config.selection got 'validation:auroc', by a figure.*expected validation,"
    refused(by_figure, **table, selection="validation:auroc")
    refused("config.figures_sensitivity got 0.9, of a threshold", **table, figures_sensitivity=0.9)
    refused("config.adaptation.kind got 'tent'", adaptation__kind="tent")
    refused("config.data.label_skew got 0.5", data__label_skew=0.5, data__homogeneity=0.5)
    refused("config.data.shots got 1", data__shots=1)
    refused("config.attack.kind got 'label_flip'", attack__kind="label_flip")
    refused("config.privacy.unit got 'client'", privacy__unit="client", privacy__noise=1.0)
    refused(
        "config.task got regression, but .* has classes, such as no",
        data={name: (x, (y > 500).astype(int)) for name, (x, y) in sites().items()},
        classes=("no", "yes"),
    )
    refused("are numbers, float; expected classes", task="classification")


def test_whole_numbers_of_arrays_may_be_classes_or_numbers() -> None:
    whole = {name: (x, np.arange(len(x)) % 4) for name, (x, _) in sites().items()}
    data = fdgjax.experiment("fedavg", data=whole, model="linear", **KEYS).built.data
    assert data.numeric
    np.testing.assert_array_equal(data.labels, domains_of(whole).labels)


def test_whole_numbers_that_float32_rounds_much_are_refused() -> None:
    refused(
        "the label of 'arrays-.*' has numbers such as 2024010[14] with .*; float32 rounds them by up to 1; .* subtract",
        data={name: (x, (y > 500).astype(int)) for name, (x, y) in sites().items()},
        classes=("20240101", "20240104"),
    )


def test_a_label_of_a_table_that_is_no_number_is_one_line(tmp_path: Path) -> None:
    hospitals = write_hospitals(tmp_path)
    for label, words in (("sick", "has '(yes|no)' in line 2; expected numbers"), ("dose", "has no 'dose' in line")):
        refused(words, "fedavg:table", data=None, data__dir=str(hospitals), data__label=label)


def test_tables_write_numbers_in_a_unit_of_any_size() -> None:
    assert [in_table("ood_rmse", value) for value in (0.00716, 1234.5, 0.5)] == ["0.00716", "1234", "0.5"]
    assert mean_and_deviation("id_rmse", 0.0099, 0.00012) == "0.0099 ± 0.00012"
    assert in_table("ood_accuracy", 63.14, "+") == "+63.1"
    assert csv_cells(as_row("c", "ood_mae", Measured(Spread(0.00716, 0.0012, 2)), None, "", ""))[2:4] == [
        "0.00716",
        "0.0012",
    ]


def is_of_numbers(name: str) -> bool:
    return METHODS[name].labels == "clients" and name not in NEED_CLASSES


@pytest.mark.parametrize("name", mostly_slow(sorted(filter(is_of_numbers, METHODS)), ("fedavg", "mixup", "feddg_ga")))
def test_every_other_method_trains_on_numbers(name: str) -> None:
    toys = toy_federation(lengths_for(name))
    federation = toys._replace(labels=toys.labels / 2, label_scale=LabelScale(jnp.float32(0.5), jnp.float32(2)))
    method = build(name, federation)
    data = pool(federation) if method.pooled else federation
    _, info = jax.eval_shape(lambda: compile_round(method, make_plan())(init_state(method, data, 0), data))
    assert info.loss.dtype == jnp.float32
