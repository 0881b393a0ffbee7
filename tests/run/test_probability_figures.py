"""Figures of probabilities from end to end: in records, by what predicts, resumed, selected, refused."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import chex
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    log_loss,
    recall_score,
    roc_auc_score,
    roc_curve,
)

import fdgjax
from fdgjax.cli import evaluate, predict
from fdgjax.evaluation.probability_figures import FIGURES, SCOPES, interval_key, recorded_keys
from fdgjax.evaluation.selection import reported
from fdgjax.experiments import build
from fdgjax.inference.tensors import facts_of
from fdgjax.run.console import Console
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.errors import UserError
from tests.runs import StopAfter, assert_same_run, built_once, never, perceptron, small

__all__ = ["built_once", "perceptron"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("perceptron")]
"""Slow: whole runs, each with a thousand resamples an evaluation."""
ALL, NAMES = ",".join(FIGURES), ("north", "south", "east")
OF_MANY = ",".join(name for name, figure in FIGURES.items() if not figure.binary)


def two_classes() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Three domains with images of two classes that overlap, and that differ in brightness."""
    rng, found = np.random.default_rng(4), {}
    for place, name in enumerate(NAMES):
        labels = rng.integers(0, 2, 60 + 20 * place)
        bright = rng.normal(100 + 12 * labels + 8 * place, 25, len(labels))[:, None, None, None]
        images = np.clip(bright + rng.normal(0, 30, (len(labels), 4, 4, 1)), 0, 255).astype(np.uint8)
        found[name] = images, labels.astype(np.int32)
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, perceptron: None) -> tuple[Path, dict[str, Any]]:
    """The run's folder and its summary."""
    path = tmp_path_factory.mktemp("two") / "run"
    experiment = fdgjax.experiment(
        "fedavg", data=two_classes(), model="perceptron", rounds=3, eval_every=1, target="north", figures=ALL,
        figures_resamples=200, data__validation=0.3, writers="",
    )  # fmt: skip
    return path, dict(experiment.train(path).summary)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unseen domain as `<class>/*`."""
    root = tmp_path_factory.mktemp("images")
    for place, (image, label) in enumerate(zip(*two_classes()["north"], strict=True)):
        (root / str(label)).mkdir(exist_ok=True)
        Image.fromarray(image[..., 0]).save(root / str(label) / f"{place:03d}.png")
    return root


def test_records_are_scikit_learns_figures_of_the_predictions(
    trained: tuple[Path, dict[str, Any]], folder: Path, tmp_path: Path
) -> None:
    """The unseen domain's, from the probabilities that `fdgjax predict` writes for its files."""
    path, summary = trained
    assert predict.main(["predict", str(path), str(folder), "--out", str(tmp_path / "p.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    labels = np.array([int(Path(row["file"]).parent.name) for row in rows])
    p = np.array([[float(row["p(0)"]), float(row["p(1)"])] for row in rows])
    decided = p[:, 1] >= summary["decision_threshold"] - 1e-6
    (tn, fp), (fn, tp) = confusion_matrix(labels, decided).astype(float)
    n = len(labels)
    expected = {
        "auroc": roc_auc_score(labels, p[:, 1]),
        "average_precision": average_precision_score(labels, p[:, 1]),
        "f1": f1_score(labels, decided),
        "balanced_accuracy": (tp / (tp + fn) + tn / (tn + fp)) / 2,
        "quadratic_kappa": 1 - (fp + fn) * n / ((tn + fp) * (fp + tp) + (fn + tp) * (tn + fn)),
        "mcc": (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)),
        "sensitivity": tp / (tp + fn),
        "specificity": tn / (tn + fp),
        "log_loss": log_loss(labels, p[:, 1]),
        "brier": brier_score_loss(labels, p[:, 1]),
    }
    assert set(expected) == set(FIGURES)
    for name, value in expected.items():
        assert summary[f"ood_{name}"] == pytest.approx(value, abs=1e-4), name
        assert summary[f"per_domain_{name}"]["north"] == summary[f"ood_{name}"]
        assert {f"{scope}_{name}" for scope in SCOPES} - set(summary) == {f"all_{name}", f"avg_{name}"}
        low, high = summary[interval_key(name)]["north"]
        assert low < high


def test_the_threshold_is_of_the_clients_validation_samples(trained: tuple[Path, dict[str, Any]]) -> None:
    """Each client's model is FedAvg's one: Youden's index over all held-out samples pooled."""
    path, summary = trained
    result = fdgjax.open_run(path, data=two_classes())
    rows = np.concatenate(result.built.parts[0].validation)
    p = np.asarray(result.predict_proba(result.data.inputs[rows]))[:, 1]
    false, true, thresholds = roc_curve(result.data.labels[rows], p, drop_intermediate=False)
    assert summary["decision_threshold"] == pytest.approx(thresholds[np.argmax(true - false)], abs=1e-6)
    assert summary["id_all_auroc"] == pytest.approx(roc_auc_score(result.data.labels[rows], p), abs=1e-6)


@pytest.mark.slow
def test_a_given_threshold_decides(perceptron: None) -> None:
    result = fdgjax.experiment(
        "fedavg", data=two_classes(), model="perceptron", rounds=1, target="north", figures="sensitivity,f1",
        figures_threshold=0.45, figures_resamples=0, writers="",
    ).train()  # fmt: skip
    rows = np.flatnonzero(result.data.domains == NAMES.index("north"))
    positive = result.predict_proba(result.data.inputs[rows])[:, 1] >= 0.45
    labels = result.data.labels[rows]
    assert result.summary["decision_threshold"] == 0.45
    assert result.summary["ood_sensitivity"] == pytest.approx(recall_score(labels, positive))
    assert result.summary["ood_f1"] == pytest.approx(f1_score(labels, positive))


def test_evaluate_gives_the_same_figures(
    trained: tuple[Path, dict[str, Any]], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, summary = trained
    words = ["evaluate", str(path), "--data", str(folder), "--json", str(tmp_path / "found.json")]
    assert evaluate.main(words) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["model"]["decision_threshold"] == summary["decision_threshold"]
    for name in (name for name, figure in FIGURES.items() if not figure.thresholded):
        assert found["figures"][name]["value"] == pytest.approx(summary[f"ood_{name}"], abs=1e-5), name
    assert set(found["figures"]) == set(FIGURES)
    assert "AUROC" in capsys.readouterr().out


def test_the_summary_is_shown(trained: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    path, summary = trained
    Console().result(summary)
    said = capsys.readouterr().out
    assert all(word in said for word in ("AUROC", "specificity", f"{summary['worst_domain_auroc']:.3f}", "threshold"))
    assert "AUROC" in repr(fdgjax.open_run(path, data=two_classes()))


def test_the_model_card_and_the_export_have_them(trained: tuple[Path, dict[str, Any]]) -> None:
    from fdgjax.inference.classifier import open_classifier
    from fdgjax.inference.model_card import card_of

    path, summary = trained
    classifier = open_classifier(path)
    card = card_of(classifier, finished=True)
    assert f"| ood AUROC (`ood_auroc`) | {summary['ood_auroc']:.3f} |" in card
    assert f"(`decision_threshold`) | {summary['decision_threshold']:.3f} |" in card
    assert facts_of(classifier)["decision_threshold"] == summary["decision_threshold"]


def test_without_the_key_nothing_changes(cache: Path, tmp_path: Path) -> None:
    """The other records are the same, and no record has a figure of probabilities; with it those of ten classes."""
    plain, more = small(cache, rounds=2), small(cache, rounds=2, figures=OF_MANY, figures_resamples=20)
    for name, config in (("plain", plain), ("more", more)):
        run_config(config, tmp_path / name, Console(), never())
    lines = {
        name: [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("plain", "more")
    }
    assert not any(set(recorded_keys()) & set(record) for record in lines["plain"])
    for before, after in zip(lines["plain"], lines["more"], strict=True):
        assert set(after) - set(before) <= set(recorded_keys())
        chex.assert_trees_all_close({key: after[key] for key in before}, before, rtol=1e-5)
    assert {f"ood_{name}" for name in OF_MANY.split(",")} <= set(lines["more"][-1])
    assert "decision_threshold" not in lines["more"][-1]


def test_a_stopped_run_resumes_exactly_with_its_figures_and_selection(
    cache: Path, tmp_path: Path, built_once: None
) -> None:
    config = small(
        cache, rounds=4, seeds=2, eval_every=1, figures="log_loss,brier", figures_resamples=20,
        selection="validation_by_size:log_loss",
    )  # fmt: skip
    summary = run_config(config, tmp_path / "whole", Console(), never())
    with pytest.raises(Interrupted):
        run_config(config, tmp_path / "parts", Console(), StopAfter(4))
    run_config(config, tmp_path / "parts", Console(), never())
    assert_same_run(tmp_path / "whole", tmp_path / "parts", config)
    for seed in (0, 1):
        lines = [json.loads(line) for line in (tmp_path / f"whole/seed_{seed}/metrics.jsonl").read_text().splitlines()]
        best = min(lines, key=lambda record: record["id_all_log_loss"])
        assert summary["per_seed"][str(seed)]["id_all_log_loss"] == best["id_all_log_loss"]
        assert reported(lines, config.selection) == best
    each = [summary["per_seed"][seed]["per_domain_brier_interval"]["r45"] for seed in ("0", "1")]
    assert summary["per_domain_brier_interval"]["r45"] == pytest.approx(np.mean(each, axis=0))
    assert math.isfinite(summary["std"]["ood_log_loss"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"figures": "auc"}, "unknown figures 'auc'"),
        ({"figures": "sensitivity"}, "needs two classes, but rotated_digits has 10; expected any of auroc"),
        ({"selection": "validation:auroc"}, "config.figures is ''; expected auroc among them"),
        ({"figures_sensitivity": 0.9}, "config.figures is empty"),
        ({"figures_threshold": 0.5}, "config.figures"),
        ({"figures": "auroc", "figures_threshold": 0.5, "figures_sensitivity": 0.9}, "expected one of them to be 0"),
        ({"figures": "auroc", "method": "fedsimclr"}, "learns without labels and gives classes no probabilities"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(cache: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        build(small(cache, **changes))
    assert "\n" not in str(caught.value)


def test_a_selection_that_no_client_can_compute_is_refused() -> None:
    images = two_classes()
    ones = {name: (own, np.full(len(labels), place % 2)) for place, (name, (own, labels)) in enumerate(images.items())}
    for rule, who in (
        ("validation", "no client's held-out samples"),
        ("validation_by_size", "the clients' held-out samples together do not"),
    ):
        ones["east"] = (ones["east"][0], ones["south"][1][[0] * len(ones["east"][1])])
        with pytest.raises(UserError, match=f"{who}.* have the classes that auroc needs"):
            fdgjax.experiment(
                "fedavg", data=ones, model="perceptron", target="north", figures="auroc", selection=f"{rule}:auroc"
            )
