"""Figures of probabilities in a deployment: which there are, what a record has of them, and what is refused."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fdgjax
from fdgjax.cli.flower import main as flower
from fdgjax.config import make_config, read_config
from fdgjax.deploy.evaluated_rounds import plausible
from fdgjax.deploy.finished_model import read_model
from fdgjax.deploy.kept import MODEL
from fdgjax.deploy.leaves import Leaves
from fdgjax.deploy.node_figures import figure_leaves, figures_in, figures_like, without_value
from fdgjax.deploy.terms import Terms
from fdgjax.deploy.wire import Reply
from fdgjax.evaluation.probabilities import Judged
from fdgjax.evaluation.probability_figures import computed_alone
from fdgjax.evaluation.statistics import wilson
from tests.deploy.faulty import one_line
from tests.deploy.test_evaluation import check_page, deployed, same, trial
from tests.deploy.trial import simulated_figures
from tests.runs import perceptron

__all__ = ["perceptron"]
ALL = "auroc,average_precision,f1,balanced_accuracy,quadratic_kappa,mcc,log_loss,brier"
OF_ALL_SAMPLES = ("id_all_", "all_", "decision_", "per_domain_calibration")
"""What the keys begin with of what is computed from several parties' probabilities."""


def terms_of(figures: str, classes: int = 2, unseen: int | None = 2, **changes: Any) -> Terms:
    config = make_config("fedavg")
    config.model.name = "perceptron"
    config.update({"figures": figures, **changes})
    return Terms(read_config(config), tuple("abcde"[:classes]), (8, 8, 1), 2, unseen=unseen)


def seen(*probabilities: float) -> Judged:
    """Samples of alternating classes, the first negative, with their probabilities of the positive one."""
    p, labels = np.array(probabilities), np.arange(len(probabilities)) % 2
    return Judged(labels, np.zeros_like(labels), np.stack([1 - p, p], axis=1))


def test_of_two_classes_none_needs_the_threshold_of_all_parties() -> None:
    assert computed_alone(ALL, 2) == ("auroc", "average_precision", "log_loss", "brier")
    assert computed_alone(ALL, 2, 0.4) == computed_alone(ALL, 3) == tuple(ALL.split(","))
    assert computed_alone("sensitivity,brier", 3, 0.4) == ("brier",)


def test_a_records_figures_are_means_over_clients_and_models_that_have_a_value(perceptron: None) -> None:
    """Of test samples where any party has some; of one party without positive samples there is none."""
    terms, names = terms_of("auroc,f1"), ["north", "south", "west"]
    good, fair, bad, none = seen(0.1, 0.9), seen(0.1, 0.9, 0.8, 0.3), seen(0.9, 0.1), seen(0.5)
    replies = {
        0: figure_leaves(terms, 0, 1, {"source": [good]}),
        1: figure_leaves(terms, 1, 1, {"source": [none]}),
        2: figure_leaves(terms, 2, 1, {"target": [good, bad]}),
    }
    found = figures_in(replies, terms, names)
    assert found["id_auroc"] == 1
    assert found["ood_auroc"] == found["worst_domain_auroc"] == 0.5
    assert found["per_domain_auroc"] == {"north": 1, "west": 0.5}
    assert found["client_auroc"] == {"0": 1}
    assert not [key for key in found if key.startswith(("avg_", "all_", "id_all_")) or key.endswith("f1")]
    replies[0] |= figure_leaves(terms, 0, 1, {"test": [fair]})
    tested = figures_in(replies, terms, names)
    assert tested["avg_auroc"] == tested["per_domain_auroc"]["north"] == 0.75
    assert tested["id_auroc"] == 1
    assert figures_in({0: {}, 1: {}, 2: {}}, terms, names) == {}


def test_a_given_threshold_is_everybodys(perceptron: None) -> None:
    terms = terms_of("sensitivity,f1", figures_threshold=0.4)
    sent = figure_leaves(terms, 0, 1, {"source": [seen(0.1, 0.45, 0.3, 0.2)]})
    found = figures_in({0: sent, 1: {}}, terms, ["north", "south", "west"])
    assert (found["id_sensitivity"], found["decision_threshold"]) == (0.5, 0.4)
    assert found["id_f1"] == pytest.approx(2 / 3)
    assert found["per_domain_sensitivity_interval"]["north"] == pytest.approx(wilson(1, 2))


def test_a_class_of_too_few_samples_or_groups_has_no_figures(perceptron: None) -> None:
    terms = terms_of("auroc,log_loss,sensitivity,specificity", figures_threshold=0.5)
    few = Judged(np.array([0, 1, 1, 1]), np.zeros(4, int), np.array([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]]))

    def sent(smallest: int, one: Judged = few) -> set[str]:
        leaves = figure_leaves(terms, 0, smallest, {"source": [one]})
        assert set(leaves) == set(figures_like(terms, {"source": 1}))
        return {path.split("/")[1] for path, leaf in leaves.items() if not np.isnan(leaf).all()}

    assert sent(1) == {"auroc", "log_loss", "sensitivity", "specificity"}
    assert sent(3) == {"log_loss", "sensitivity"}
    leaves = figure_leaves(terms, 0, 3, {"source": [few], "test": [seen(*[0.5] * 8)]})
    assert without_value(leaves, terms) == []
    assert without_value(figure_leaves(terms, 0, 3, {"source": [few]}), terms) == ["auroc", "specificity"]
    assert without_value({}, terms) == []
    assert sent(3, few._replace(groups=np.array([0, 1, 1, 2]))) == set()


@pytest.mark.slow
def test_where_no_node_sends_the_figure_that_selects_the_last_round_is_delivered_and_that_is_said(
    cache: Path, perceptron: None, tmp_path: Path
) -> None:
    """The counts of the same samples are sent: all together they are enough, those of a class are not."""
    those, said = trial(cache, "fedavg"), list[str]()
    config = dataclasses.replace(those.terms.config, figures="auroc", selection="validation:auroc")
    least = min(len(own.labels) for own in those.held_out)
    deployed(those._replace(terms=those.terms._replace(config=config)), tmp_path, least, said)
    assert [line for line in said if "sends no auroc: for a class that they need it evaluates on fewer samples" in line]
    assert any("selection=validation:auroc" in line and "the last round's model is taken" in line for line in said)
    summary = json.loads((tmp_path / "server" / "summary.json").read_text())
    assert "id_accuracy" in summary
    files = [tmp_path / "server" / MODEL, *tmp_path.glob(f"node*/states/*/{MODEL}")]
    assert [read_model(file)[1]["round"] for file in files] == ["2"] * 3


def test_without_a_party_left_out_there_is_none_of_the_unseen_domain(perceptron: None) -> None:
    terms = terms_of("log_loss", unseen=None)
    sent = figure_leaves(terms, 0, 1, {"source": [seen(0.1, 0.9)]})
    found = figures_in({0: sent, 1: {}}, terms, ["north", "south"])
    assert found["id_log_loss"] == pytest.approx(-math.log(0.9))
    assert "ood_log_loss" not in found


def test_figures_that_no_node_of_ours_would_send_are_an_error(perceptron: None) -> None:
    terms = terms_of("auroc")
    right: Leaves = figures_like(terms, {"source": 1, "target": 2})
    assert set(right) == {f"figures/auroc/{table}{end}" for table in ("source", "target") for end in ("", "/interval")}

    def judged(**changes: Any) -> Reply:
        return plausible(Reply(1, right | {f"figures/{path}": leaf for path, leaf in changes.items()}, {}), terms, 2)

    assert not judged().error
    assert not judged(**{"auroc/source": np.array([np.nan])}).error
    for path, value in (
        ("auroc/source", np.array([np.inf])),
        ("auroc/source", np.zeros(3)),
        ("auroc/source", np.zeros(1, np.float32)),
        ("auroc/source", np.array(["x"])),
        ("auroc/adapted", np.zeros(1)),
        ("f1/source", np.zeros(1)),
    ):
        one_line(judged(**{path: value}), f"'figures/{path}'", "by config.figures")


def test_the_command_names_the_figures_that_are_left_out(
    perceptron: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--config=fedavg:folder", "--config.model.name=perceptron", "--config.data.image_size=8", "--classes=a,b"]
    asked += [f"--app={tmp_path / 'app'}", f"--workdir={tmp_path / 'run'}", "--config.data.clients=2"]
    fdgjax.register_figure("mine", lambda labels, probabilities, threshold: 0.5)
    assert flower(["fdgjax flower", *asked, "--config.figures=auroc,mine"]) == 2
    assert "config.figures got 'mine' of " in capsys.readouterr().err
    assert flower(["fdgjax flower", *asked, "--config.figures=auroc,f1,mcc"]) == 0
    assert "not computed: f1, mcc, whose threshold" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "ditto"])
def test_figures_of_probabilities_are_the_simulations_where_each_party_can_compute_them(
    name: str, cache: Path, perceptron: None, tmp_path: Path
) -> None:
    names = {"figures": "auroc,log_loss,f1", "figures_resamples": 50, "selection": "validation:auroc"}
    those = trial(cache, name, **names)
    for found, expected in zip(deployed(those, tmp_path), simulated_figures(those), strict=True):
        wanted = {key: figure for key, figure in expected.items() if not key.startswith(OF_ALL_SAMPLES)}
        assert {"id_auroc", "ood_log_loss", "client_f1", "per_domain_auroc_interval"} <= wanted.keys()
        for key, figure in wanted.items():
            same(found[key], figure)
        assert not [key for key in found if key.startswith(OF_ALL_SAMPLES) and key.endswith(("auroc", "f1"))]
    check_page(those.terms, tmp_path)
