"""A federation of tables: parties exchange statistics before the first round, and train as the simulation does."""

import dataclasses
import datetime
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fdgjax.cli.flower import classes_in, columns_in
from fdgjax.cli.flower import main as flower
from fdgjax.config import make_config, read_config
from fdgjax.data.columns import Column
from fdgjax.data.sources.table_files import read_table
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.own_samples import OwnPlaces, own_samples
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import make_server
from fdgjax.deploy.statistics import with_statistics
from fdgjax.deploy.terms import agree, from_words, to_words
from fdgjax.utils.errors import UserError
from tests.deploy.deployed import deploy
from tests.deploy.loopback import Secured
from tests.deploy.test_request_handlers import Direct
from tests.deploy.trial import Trial, agreed_terms, compare, make_trial, node_settings, write_table
from tests.hospitals import write_hospitals
from tests.runs import perceptron

__all__ = ["perceptron"]


@pytest.fixture(scope="module")
def trial(perceptron: None, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    config = make_config("fedavg", "table")
    config.model.name = "perceptron"
    config.data.update({"dir": str(write_hospitals(tmp_path_factory.mktemp("tables"))), "label": "sick"})
    config.update({"rounds": 2, "batch_size": 6, "devices": 1})
    return make_trial(read_config(config))


def test_a_party_reads_its_rows_as_the_simulation_does(trial: Trial, tmp_path: Path) -> None:
    for settings, own in zip(node_settings(trial, tmp_path), trial.clients, strict=True):
        found = own_samples(settings.places.samples, trial.terms, tmp_path)
        np.testing.assert_array_equal(found.inputs, own.inputs)
        np.testing.assert_array_equal(found.labels, own.labels)


@pytest.mark.slow
def test_exchanged_statistics_are_those_of_the_pooled_training_rows_and_train_as_in_the_simulation(
    trial: Trial, tmp_path: Path
) -> None:
    direct = Direct(node_settings(trial, tmp_path))
    terms = with_statistics(trial.terms, trial.server, direct)
    expected = trial.experiment.encodings[0]
    assert terms.encoding is not None
    assert expected is not None
    for name in ("mean", "scale", "missing", "known"):
        np.testing.assert_allclose(getattr(terms.encoding, name), getattr(expected, name), rtol=1e-6)
    assert to_words(from_words(to_words(terms))) == to_words(terms)
    run_rounds(make_server(agree(terms), trial.server), direct, tmp_path / "server", Policy(), list[str]().append)
    found = compare(trial._replace(terms=terms), tmp_path)
    assert max(found.server, found.rows) <= 1e-5 * found.largest


def test_a_category_that_was_not_agreed_on_is_counted_for_none(trial: Trial, tmp_path: Path) -> None:
    settings = node_settings(trial, tmp_path)
    file = settings[0].places.samples
    file.write_text(file.read_text().replace(",A", ",Z"))
    found = with_statistics(trial.terms, trial.server, Direct(settings)).encoding
    assert found is not None
    assert trial.experiment.encodings[0] is not None
    np.testing.assert_allclose(found.mean, trial.experiment.encodings[0].mean, rtol=1e-6)


def test_a_party_may_have_further_columns_of_any_type(trial: Trial, tmp_path: Path) -> None:
    file = write_table(tmp_path / "own.csv", trial.clients[0], trial)
    table = read_table(file)
    table = table.append_column("day", pa.array([datetime.date(2020, 1, 1)] * len(table)))
    pyarrow.parquet.write_table(table, tmp_path / "own.parquet")
    found = own_samples(tmp_path / "own.parquet", trial.terms, tmp_path)
    np.testing.assert_array_equal(found.inputs, trial.clients[0].inputs)


def test_a_hospital_with_other_columns_or_labels_is_told_so(trial: Trial, tmp_path: Path) -> None:
    file = write_table(tmp_path / "own.csv", trial.clients[0], trial)
    text = file.read_text()
    for changed, words in (
        (text.replace("age", "years"), "lacks 1 of the 4 columns .* age; it has also: .*years"),
        (text.replace("sick", "ill"), "lacks the column 'sick' with the labels"),
        (text.replace("yes", "maybe"), "has the labels maybe, which are no classes; expected no, yes"),
    ):
        file.write_text(changed)
        with pytest.raises(UserError, match=words):
            own_samples(file, trial.terms, tmp_path)
    error = Direct([NodeSettings(0, OwnPlaces(tmp_path / "none.csv"), tmp_path)])
    with pytest.raises(KeyError):  # the test's transport reads what a failed reply lacks
        with_statistics(trial.terms._replace(clients=1), trial.server, error)


def test_nothing_is_exchanged_without_standardisation(trial: Trial) -> None:
    data = dataclasses.replace(trial.terms.config.data, standardise=False)
    terms = trial.terms._replace(config=dataclasses.replace(trial.terms.config, data=data))
    assert with_statistics(terms, trial.server, Direct([])) is terms


def test_columns_are_named_in_words() -> None:
    assert columns_in("age, sex=f|m ,dose") == (Column("age"), Column("sex", ("f", "m")), Column("dose"))
    assert columns_in('"blood, pressure",age,"stage=a, b|c"') == (
        Column("blood, pressure"),
        Column("age"),
        Column("stage", ("a, b", "c")),
    )
    for words in ("age,age", "=a|b", "sex=m|m", "sex=", "sex=m|"):
        with pytest.raises(UserError, match="expected each name once"):
            columns_in(words)


def test_classes_are_in_the_simulations_order() -> None:
    assert classes_in("10, 2,1.0", table=True) == ("1", "2", "10")
    assert classes_in("10,2,b", table=True) == classes_in("10, 2, b", table=False) == ("10", "2", "b")
    for words, table in (("a, a", False), ("1,1.0", True)):
        with pytest.raises(UserError, match="expected different words"):
            classes_in(words, table)
    with pytest.raises(UserError, match="'a' alone; expected at least two"):
        classes_in("a", table=True)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([], "config.data.label is empty"),
        (["label=sick"], "'sick', which is config.data.label; .*: age;"),
        (["label=num", "ignored=sick"], "'sick', which is config.data.ignored; .*: age;"),
    ],
)
def test_the_label_is_named_and_is_no_column_to_train_on(
    keys: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [f"--app={tmp_path / 'app'}", "--classes=0,1", f"--workdir={tmp_path / 'run'}", "--columns=age, sick"]
    experiment = ["--config=fedavg:table", "--config.data.clients=2", *(f"--config.data.{key}" for key in keys)]
    assert flower(["fdgjax flower", *asked, *experiment]) == 2
    assert re.search(words, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_three_hospitals_with_tables_train_over_flower_as_in_the_simulation(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In processes of their own, with TLS and registered keys; the network is the preset's."""
    config = make_config("fedavg", "table")
    config.data.update({"dir": str(write_hospitals(tmp_path_factory.mktemp("tables"))), "label": "sick"})
    config.data.update({"protocol": "every_domain", "validation": 0.1, "test": 0.1})
    config.update({"rounds": 2, "batch_size": 6, "devices": 1})
    trial, said = make_trial(read_config(config)), list[str]()
    deploy(trial, tmp_path, Secured(tmp_path / "keys", authentication=True), said.append)
    terms = agreed_terms(tmp_path)
    assert terms.encoding is not None
    assert trial.experiment.encodings[0] is not None
    np.testing.assert_allclose(terms.encoding.mean, trial.experiment.encodings[0].mean, rtol=1e-6)
    found = compare(trial._replace(terms=terms), tmp_path)
    assert len(said) == 2
    assert max(found.server, found.rows) <= 1e-5 * found.largest
    summary = json.loads((tmp_path / "server" / "summary.json").read_text())
    assert set(summary["client_auroc"]) <= {"0", "1", "2"}
    assert summary["id_auroc"] == pytest.approx(np.mean(list(summary["client_auroc"].values())))
