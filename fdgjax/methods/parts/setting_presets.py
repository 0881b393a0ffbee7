"""Settings that kinds of methods need on a data set, laid over `fdgjax.config.presets`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

SERVED: Mapping[str, Mapping[str, Any]] = {
    "rotated_digits": {
        "rounds": 40,
        "local_epochs": 5,
        "method": {"client_optimizer": "adam", "client_learning_rate": 1e-3},
    }
}
"""For a labelled server: on the digits UAP's number of rounds, and an optimiser for a small network trained from
scratch."""

SERVED_AND_MIXED: Mapping[str, Mapping[str, Any]] = {
    "rotated_digits": {
        **SERVED["rotated_digits"],
        "method": {**SERVED["rotated_digits"]["method"], "server_momentum": 0.0, "augmentation": "none"},
    },
    "uap_rotated_mnist_small": {"method": {"server_momentum": 0.0}},
}
"""For SemiFL with Adam at the clients and a cosine schedule: the server's momentum, built up by the larger early steps,
would outweigh later ones. A shifted and cut view leaves too little of an 8x8 digit."""

SERVED_BY_SGD: Mapping[str, Mapping[str, Any]] = {
    "rotated_digits": {"rounds": 40, "local_epochs": 5},
    "uap_rotated_mnist_small": {
        "method": {"client_optimizer": "sgd", "client_learning_rate": 0.021, "client_momentum": 0.9}
    },
}
"""For a labelled server and steps that must scale with the loss: SGD instead of Adam (RSCFed's official rate)."""

UNLABELLED: Mapping[str, Mapping[str, Any]] = {
    "rotated_digits": {"rounds": 60, "drop_last": True, "model": {"name": "digits_cnn", "width": 0.5}},
    "fedgala_pacs_small": {"method": {"smallest_crop": 0.2}},
}
"""For clients without labels: on the digits, a run of a minute or two; larger crops of small images."""

SIMCLR: Mapping[str, Mapping[str, Any]] = {
    **UNLABELLED,
    "fedgala_pacs_small": {
        "method": {**UNLABELLED["fedgala_pacs_small"]["method"], "client_learning_rate": 1e-3, "temperature": 0.2}
    },
}
"""For SimCLR with few epochs: ten times the learning rate, and a higher temperature."""

BATCH_STATISTICS: Mapping[str, Mapping[str, Any]] = {
    f"pretrained_{data}": {"model": {"frozen_statistics": False}} for data in ("pacs", "office_caltech10", "folder")
}
"""For clients with statistics of their own (FedBN), for generated weights, and for FedSR: with ImageNet's statistics
hFedF is behind on the clients' own domains (benchmarks/results/pretrained_pacs), FedSR on all
(benchmarks/results/pretrained_pacs_one_seed_frozen_statistics)."""


def official_fdse(pacs: Mapping[str, Any], office: Mapping[str, Any] = MappingProxyType({})) -> Mapping[str, Any]:
    """A method's own settings in FDSE's official code, `config/pacs` and `config/office`, where they differ from those
    shared by all methods; of both official programs."""
    own = {"fdse_pacs": pacs, "fdse_office_caltech10": office}
    return {f"{preset}{program}": {"method": dict(keys)} for preset, keys in own.items() for program in ("", "_2026")}
