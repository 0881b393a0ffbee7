"""FedFA: FedAvg over a network that augments its features, the more so where clients differ.

Paper: Zhou & Konukoglu, 2023; hyperparameters of hFedF v2, Table 10 for FedAvg.

    python -m fdgjax.main --config=configs/fedfa.py
    python -m fdgjax.main --config=configs/fedfa.py:fdse_pacs --config.data.dir=DATA

Published: PACS, one client per domain, after 500 rounds: ALL 75.44, AVG 73.60 (FDSE, Table 1).
Measured: Rotated digits (target r45, seed 0): id 0.933, ood 0.906.
"""

from ml_collections import ConfigDict

from fdgjax.config import make_config


def get_config(dataset: str = "rotated_digits") -> ConfigDict:
    """The config of this method on a data set."""
    return make_config("fedfa", dataset)
