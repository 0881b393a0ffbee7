"""FedFA: FedAvg over a network that perturbs its features' channel statistics, more where clients differ.

Paper: Zhou & Konukoglu, 2023; hyperparameters of hFedF v2, Table 10 for FedAvg.

    python -m fdgjax.main --config=configs/fedfa.py
    python -m fdgjax.main --config=configs/fedfa.py:fdse_pacs --config.data.dir=DATA

Published: PACS, one client per domain, after 500 rounds: ALL 75.44, AVG 73.60 (FDSE, Table 1).
Measured: Rotated digits (target r45, seed 0): id 0.933, ood 0.906.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedfa")
