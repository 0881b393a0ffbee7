"""UCI's Heart Disease: what scikit-learn reaches where a hospital is left out, beside the sweep of all methods, and
FLamby's protocol; keeps figures, and makes the tables of docs/results.md from them.

    python -m launch.hospitals sweep runs/hearts           # keeps a sweep's figures
    python -m launch.hospitals reference DATA              # logistic regression and gradient boosting, pooled and alone
    python -m launch.hospitals flamby DATA --runs DIR      # FLamby's protocol, all four hospitals as clients
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fdgjax
from fdgjax.config import make_config, read_config
from fdgjax.data.encoding import Encoding
from fdgjax.data.federation import Partition
from fdgjax.experiments import Experiment, build
from fdgjax.report.reading import read_runs
from fdgjax.utils.command import command
from fdgjax.utils.markdown import markdown_table
from launch.every_method import cells_of, means
from launch.rows import RESULTS, values_by_method, write_rows

FOLDER = RESULTS / "heart_disease"
SEEDS = 20
FIGURES = {"ood_accuracy": "accuracy", "ood_auroc": "auroc", "id_accuracy": "id"}
DROPPED = "slope,ca,thal"
"""The columns that are missing almost everywhere outside Cleveland, which FLamby leaves out."""


class HospitalRow(NamedTuple):
    """One seed with an unseen hospital: accuracy and AUROC there, and accuracy on the clients' own held-out rows."""

    method: str
    target: str
    seed: int
    accuracy: float
    auroc: float
    id: float


@command
def main(argv: Sequence[str]) -> int:
    """Keeps figures; returns the exit status, 2 for a mistake in the input."""
    parser = argparse.ArgumentParser(prog="python -m launch.hospitals", description=str(__doc__).partition("\n")[0])
    parser.add_argument("what", choices=TASKS)
    parser.add_argument("place", help="the folder of the sweep, or of the data")
    parser.add_argument("--runs", default="runs/flamby", help="a folder for FLamby's runs")
    args = parser.parse_args(argv[1:])
    TASKS[args.what](args)
    return 0


def keep_sweep(args: argparse.Namespace) -> None:
    """The finished runs' figures."""
    rows = [
        HospitalRow(run.method, str(seed.summary["target"]), int(seed.seed), *(seed.figures[key] for key in FIGURES))
        for run in read_runs([Path(args.place)])
        for seed in run.seeds
        if seed.summary
    ]
    write_rows(FOLDER / "methods.csv", HospitalRow._fields, sorted(rows))


def keep_references(args: argparse.Namespace) -> None:
    """Models of scikit-learn on the same training rows and inputs, pooled and of each hospital alone."""
    names = list(build(read_config(config_of(args.place, ""))).data.domain_names)
    rows = [row for target in names for row in references(build(read_config(config_of(args.place, target))), target)]
    write_rows(FOLDER / "references.csv", HospitalRow._fields, sorted(rows))


def config_of(place: str, target: str) -> Any:
    """FedAvg's config of the sweep, for its split and encoding."""
    config = make_config("fedavg", "heart_disease")
    config.data.dir, config.data.target, config.seeds = place, target, SEEDS
    return config


def references(experiment: Experiment, target: str) -> Iterator[HospitalRow]:
    """The figures of each seed's models."""
    data = experiment.data
    for seed, split, encoding in zip(experiment.seeds, experiment.parts, experiment.encodings, strict=True):
        assert encoding is not None, "tables are encoded"
        held = np.concatenate(split.validation)
        for name, rows in trained_on(data.domain_names, data.domains, split).items():
            if len(np.unique(data.labels[rows])) < 2:
                continue  # a hospital whose training rows are of one class
            for kind, make in MODELS.items():
                p = fitted(make, kind, data, rows, encoding)
                unseen, own = p(split.target), p(held)
                yield HospitalRow(
                    f"{kind}, {name}",
                    target,
                    int(seed),
                    float(np.mean((unseen > 0.5) == data.labels[split.target])),
                    auroc(data.labels[split.target], unseen),
                    float(np.mean((own > 0.5) == data.labels[held])),
                )


def trained_on(names: Sequence[str], domains: np.ndarray, split: Partition) -> Mapping[str, np.ndarray]:
    """The training rows of all clients, and of each hospital's."""
    alone = {f"{names[domains[rows[0]]]} alone": rows for rows in split.train}
    return {"pooled": np.concatenate(split.train), **alone}


def logistic_regression() -> Any:
    """scikit-learn's, with its default penalty."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=2000)


def gradient_boosting() -> Any:
    """scikit-learn's, which takes missing values as they are."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


MODELS: Mapping[str, Callable[[], Any]] = {
    "logistic regression": logistic_regression,
    "gradient boosting": gradient_boosting,
}
RAW = ("gradient boosting",)
"""Models that are given the stored values, with NaN, instead of the network's inputs."""


def fitted(
    make: Callable[[], Any], kind: str, data: Any, rows: np.ndarray, encoding: Encoding
) -> Callable[[np.ndarray], np.ndarray]:
    """The probability of the second class at rows, by a model fitted to others."""

    def inputs(at: np.ndarray) -> np.ndarray:
        return data.inputs[at] if kind in RAW else np.asarray(encoding(data.inputs[at]))

    model = make().fit(inputs(rows), data.labels[rows])
    return lambda at: np.asarray(model.predict_proba(inputs(at))[:, 1])


def auroc(labels: np.ndarray, p: np.ndarray) -> float:
    """The area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, p))


def keep_flamby(args: argparse.Namespace) -> None:
    """Accuracy of each hospital and of all test rows, by FLamby's columns, rows and standardisation by hospital."""
    arrays = flamby_arrays(args.place)
    common = {"data.protocol": "every_domain", "data.test": 0.34, "data.validation": 0.01, "seeds": SEEDS}
    common |= {"batch_size": 4, "eval_every": 1000, "devices": 1, "writers": ""}
    federated = {"rounds": 15, "local_epochs": 3, "method.client_optimizer": "sgd"}
    pooled = {"rounds": 50, "local_epochs": 1}
    settings: Mapping[str, Mapping[str, Any]] = {"central": pooled, "fedavg": federated, "local": pooled}
    rows = []
    for method, own in settings.items():
        keys = {**common, **own, "method.client_learning_rate": 1e-3}
        result = fdgjax.experiment(method, data=arrays, model="linear", **keys).train(Path(args.runs) / method)
        for seed, records in zip(result.built.seeds, result.seed_records, strict=True):
            last = records[-1]
            figures = {**last["per_domain_accuracy"], "all": last["all_accuracy"]}
            rows += [(method, name, seed, value) for name, value in figures.items()]
    write_rows(FOLDER / "flamby.csv", ("method", "test", "seed", "accuracy"), sorted(rows))


def flamby_arrays(place: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The rows without missing values of ten columns, categories as places but the first, standardised by hospital."""
    config = make_config("fedavg", "heart_disease")
    config.data.dir, config.data.ignored, config.data.categorical = place, DROPPED, "cp,restecg"
    data = build(read_config(config)).data
    parts = []
    for i, column in enumerate(data.columns):
        values = data.inputs[:, i : i + 1]
        places = values == np.arange(1, max(1, len(column.categories)))[None]
        parts.append(np.where(np.isnan(values), np.nan, places) if column.categories else values)
    inputs = np.concatenate(parts, axis=1)
    whole = ~np.isnan(inputs).any(axis=1)
    found = {}
    for number, name in enumerate(data.domain_names):
        own = whole & (data.domains == number)
        deviation = inputs[own].std(axis=0)
        scaled = (inputs[own] - inputs[own].mean(axis=0)) / np.where(deviation > 0, deviation, 1)
        found[name] = (scaled.astype(np.float32), data.labels[own])
    return found


def hospitals_table(_: str) -> str:
    """Each method's accuracy and AUROC on the unseen hospital, mean over the four, and its difference from FedAvg."""
    files = [FOLDER / f"{name}.csv" for name in ("methods", "references")]
    figures = {
        name: {method: own for file in files for method, own in values_by_method(file, name).items()}
        for name in ("accuracy", "auroc")
    }
    head = ["AUROC", "minus FedAvg", "accuracy", "minus FedAvg"]
    first, rows = figures["auroc"], []
    for method in sorted(first, key=lambda name: -means(first[name])):
        cells = [cell for name in ("auroc", "accuracy") for cell in cells_of(figures[name], method)]
        rows.append([method if "," in method else f"`{method}`", *cells])
    return "\n".join([*markdown_table(["method", *head], rows, right=head), ""])


TASKS: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "sweep": keep_sweep,
    "reference": keep_references,
    "flamby": keep_flamby,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv))
