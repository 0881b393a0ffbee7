"""FDSE's presets: the settings of its official code, file by file, and those of the paper.

The files are those of WwZzz/FDSE_CVPR25: dd266a2 is the first program, c0bd90b the second, of January 2026.
"""

from typing import Any

import jax.numpy as jnp
import pytest

from fdgjax.config import Config, make_config, read_config
from fdgjax.methods.parts.hyper import learning_rate_factor

OF_ALL = {  # the same in every file of config/pacs, config/office and config/run*.yml
    "batch_size": 50,
    "rounds": 500,
    "eval_every": 1,  # FLGo's default
    "selection": "validation_by_size",  # get_run_res.py: the round with the best local_val_accuracy, weighted by size
    "client_model": "trained",
    "data.image_size": 256,  # transforms.Resize([256, 256]) of each task
    "data.scaling": "unit",
    "data.augmentation": "none",
    "model.unbiased_variance": True,  # torch.nn.BatchNorm2d
    "model.masked_statistics": True,  # a DataLoader with drop_last=False
    "method.client_optimizer": "sgd",
    "method.client_weight_decay": 1e-3,
    "method.client_learning_rate_decay": 0.9998,
    "method.client_clip": 10.0,
    "method.client_momentum": 0.0,
}
OFFICE = {"local_epochs": 1, "method.client_learning_rate": 0.1}
PACS = {"local_epochs": 5}
FIRST = {"model.name": "alexnet", "model.unit": "", "method.consistency": "paper", "method.first_round": 1}
SECOND = {
    "model.name": "alexnet_unpadded",
    "model.unit": "dse_official",
    "method.consistency": "official",
    "method.first_round": 1,
}
OFFICIAL: dict[tuple[str, str], dict[str, Any]] = {
    ("fdse", "fdse_office_caltech10"): OFFICE | FIRST,
    ("fedavg", "fdse_office_caltech10"): OFFICE,  # config/office/fedavg.yml
    ("fedbn", "fdse_office_caltech10"): OFFICE,  # config/office/fedbn.yml
    ("ditto", "fdse_office_caltech10"): OFFICE | {"method.mu": 0.01, "method.weighting": "uniform"},  # office/ditto.yml
    ("fedheal", "fdse_office_caltech10"): OFFICE | {"method.tau": 0.2},  # config/office/fedheal.yml
    ("fdse", "fdse_pacs"): PACS | FIRST | {"method.client_learning_rate": 0.05},  # config/pacs/fdse.yml
    ("fedavg", "fdse_pacs"): PACS | {"method.client_learning_rate": 0.1},  # config/pacs/fedavg.yml
    ("fedbn", "fdse_pacs"): PACS | {"method.client_learning_rate": 0.1},  # config/pacs/fedbn.yml
    ("ditto", "fdse_pacs"): PACS | {"method.client_learning_rate": 0.05, "method.mu": 1e-4},  # config/pacs/ditto.yml
    ("fedheal", "fdse_pacs"): PACS | {"method.client_learning_rate": 0.1, "method.tau": 0.1},  # config/pacs/fedheal.yml
    # config/office/fdse.yml and config/pacs/fdse.yml: algo_para is lambda, tau and beta
    ("fdse", "fdse_office_caltech10_2026"): OFFICE
    | SECOND
    | {"method.strength": 0.05, "method.tau": 0.5, "method.beta": 0.05},
    ("fdse", "fdse_pacs_2026"): PACS | SECOND | {"method.strength": 0.5, "method.tau": 0.5, "method.beta": 0.001},
}
PAPER = {  # sections 5.1 and A7.4
    "rounds": 500,
    "batch_size": 50,
    "data.image_size": 224,
    "selection": "validation",
    "model.name": "alexnet",
    "model.unbiased_variance": False,
    "model.masked_statistics": False,
    "method.client_learning_rate": 0.05,
    "method.client_learning_rate_decay": 0.998,
    "method.client_clip": 10.0,
}


def settings(method: str, preset: str) -> Config:
    return read_config(make_config(method, preset))


def check(config: Config, wanted: dict[str, Any]) -> None:
    for path, value in wanted.items():
        found: Any = config
        for key in path.split("."):
            found = getattr(found, key)
        assert found == value, path


@pytest.mark.parametrize(("method", "preset"), OFFICIAL)
def test_official_settings(method: str, preset: str) -> None:
    check(settings(method, preset), OF_ALL | OFFICIAL[method, preset])


@pytest.mark.parametrize(("dataset", "epochs"), [("pacs", 5), ("office_caltech10", 1), ("domainnet10", 5)])
def test_the_papers_settings(dataset: str, epochs: int) -> None:
    config = settings("fdse", f"fdse_{dataset}_paper")
    check(config, PAPER | {"local_epochs": epochs, "data.name": dataset, "method.first_round": 0})


@pytest.mark.parametrize("method", ["fedavg", "fedbn", "ditto", "fedheal"])
def test_the_authors_second_program_differs_for_fdse_alone(method: str) -> None:
    for dataset in ("pacs", "office_caltech10"):
        assert settings(method, f"fdse_{dataset}") == settings(method, f"fdse_{dataset}_2026")


@pytest.mark.slow
def test_the_learning_rate_decays_as_in_flgo() -> None:
    """`global_lr_scheduler`: a round's rate times the decay is the next one's; the first round has the rate itself."""
    method, rate, rounding = settings("fdse", "fdse_office_caltech10").method, 0.1, 500 * 6e-8
    for round_ in range(500):
        factor = learning_rate_factor(method, jnp.asarray(round_), 500)
        assert float(factor) * method.client_learning_rate == pytest.approx(rate, rel=rounding)
        rate *= 0.9998
