"""Run folders as runs leave them, with numbers drawn at random, and what is in them read again by plain code."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from fdgjax.config import make_config, read_config, to_plain
from fdgjax.report.reading import Run, read_runs
from fdgjax.report.trained_states import Features, TrainedState
from fdgjax.utils.checksums import write_checked_json

DOMAINS = ("r0", "r15", "r30", "r45")
FACTS = {"bytes_up_per_round": 3_000_000, "bytes_down_per_round": 1_000_000, "wall_seconds": 12.5}


def write_run(
    path: Path, method: str = "fedavg", /, *, seeds: tuple[int, ...] = (0, 1), done: int = 6, **changes: Any
) -> Path:
    """The folder of a run of 6 rounds, evaluated every other round; with several seeds, one for each below it."""
    config = make_config(method, "rotated_digits")
    config.update({"seed": seeds[0], "seeds": len(seeds), "rounds": 6, "eval_every": 2, "drop_last": True, **changes})
    config.data.target = "r45"
    plain = to_plain(read_config(config))
    path.mkdir(parents=True)
    write_checked_json(path / "config.json", {"config": plain, "versions": {"jax": "1.2.3"}})
    for seed in seeds:
        place = path / f"seed_{seed}" if len(seeds) > 1 else path
        place.mkdir(exist_ok=True)
        write_checked_json(
            place / "config.json", {"config": plain | {"seed": seed, "seeds": 1}, "versions": {"jax": "1.2.3"}}
        )
        records = [record(method, seed, round_) for round_ in range(1, done + 1)]
        (place / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
        if done == 6:
            summary = {"method": method, "target": "r45", "seed": seed, "rounds": 6, **FACTS, **records[-1]}
            write_checked_json(place / "summary.json", summary)
    return path


def write_afterwards(path: Path) -> None:
    """What probing again and comparing domains leave in a run's folder."""
    rng = np.random.default_rng(3)
    probe = lambda: {"10": float(rng.random()), "60": float(rng.random())}  # noqa: E731
    seeds = [{"seed": s, **{what: probe() for what in ("trained", "random_encoder", "pixels")}} for s in (0, 1)]
    write_checked_json(path / "probes.json", {"features": {"layer": "features", "round": 6, "seeds": seeds}})
    pairs = [
        {"domains": [one, other], "covariance": [0.1, 0.2], "correlation": [0.3, 0.5], "mutual_information": 1.5}
        for one, other in itertools.combinations(DOMAINS, 2)
    ]
    write_checked_json(path / "domain_shift.json", {"round": 6, "target": "r45", "pairs": pairs})


def record(method: str, seed: int, round_: int) -> dict[str, Any]:
    """A line of `metrics.jsonl`."""
    rng = np.random.default_rng([seed, round_, len(method)])
    weights = rng.dirichlet(np.ones(3)).tolist()
    line: dict[str, Any] = {"round": round_, "train_loss": 1.0, "participants": [0, 2, 3]}
    line |= {"coefficients/weights/a": weights, "coefficients/weights/b": weights[::-1]}
    line |= {"coefficients/discarded": rng.random(3).tolist(), "coefficients/personal": np.ones((3, 3)).tolist()}
    if round_ == 1:
        line |= {"pixel_probe": {"10": 0.3, "30": 0.4}, "random_encoder_probe": {"10": 0.2, "30": 0.5}}
    return line | (figures(rng, round_) if round_ % 2 == 0 else {})


def figures(rng: np.random.Generator, round_: int) -> dict[str, Any]:
    """What an evaluation adds to it: growing accuracies."""
    domains = {name: float(round_ / 8 + rng.random() / 4) for name in DOMAINS}
    count = rng.integers(20, 90, 15)
    return {
        "id_accuracy": float(round_ / 8 + rng.random() / 4),
        "ood_accuracy": domains["r45"],
        "per_domain_accuracy": domains,
        "worst_domain_accuracy": min(domains.values()),
        "client_accuracy": {str(client): float(rng.random()) for client in range(4)},
        "ece": float(rng.random() / 5),
        "calibration": {
            "count": count.astype(float).tolist(),
            "correct": (count // 2).astype(float).tolist(),
            "confidence": (count * (np.arange(15) + 0.5) / 15).tolist(),
        },
        "id_auroc": 0.9,
        "ood_auroc": domains["r45"] / 2 + 0.5,
        "per_domain_auroc": {name: value / 2 + 0.5 for name, value in domains.items()},
        "per_domain_auroc_interval": {name: [value / 2 + 0.4, value / 2 + 0.6] for name, value in domains.items()},
        "worst_domain_auroc": min(domains.values()) / 2 + 0.5,
        "ood_log_loss": 2 - domains["r45"],
        "decision_threshold": 0.4,
        "per_domain_calibration": {
            name: {
                "count": [8.0 + place] * 10,
                "positive": [float(i) for i in range(10)],
                "probability": [(8 + place) * (i + 0.5) / 10 for i in range(10)],
            }
            for place, name in enumerate(DOMAINS)
        },
        "ood_rmse": domains["r45"] / 10_000,
        "id_rmse": 0.0002,
        "ood_r2": -domains["r45"],
        "per_domain_rmse": {name: value / 10_000 for name, value in domains.items()},
        "worst_domain_rmse": max(domains.values()) / 10_000,
        "probe_accuracy": 0.5,
        "probe_by_percent": {"10": float(rng.random()), "30": float(rng.random())},
    }


def look() -> TrainedState:
    """What a trained state shows."""
    rng = np.random.default_rng(0)
    classes, domains = np.arange(40) % 3, np.arange(40) % 4
    features = Features(rng.normal(size=(40, 5)) + classes[:, None], classes, domains, ("a", "b", "c"), DOMAINS)
    return TrainedState({}, 6, rng.normal(size=(4, 2)), {"conv": 0.1, "head": 0.3}, features)


def two_methods(folder: Path) -> list[Run]:
    """Two methods, two seeds each, and their trained states."""
    paths = [write_run(folder / method, method) for method in ("fedavg", "hfedf")]
    for path in paths:
        write_afterwards(path)
    return [run._replace(trained_state=look()) for run in read_runs(paths)]


def lines_of(path: Path, seed: int) -> list[dict[str, Any]]:
    """A seed's records, read by nothing of ours."""
    return [json.loads(line) for line in (path / f"seed_{seed}" / "metrics.jsonl").read_text().splitlines()]
