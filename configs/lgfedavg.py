"""LG-FedAvg: each client has its own representation; the last layers are shared.

Paper: Liang et al., 2020; hyperparameters of hFedF v2, Table 10 for FedAvg.

    python -m fdgjax.main --config=configs/lgfedavg.py
    python -m fdgjax.main --config=configs/lgfedavg.py:fdse_pacs --config.data.dir=DATA

Published: PACS, one client per domain, after 500 rounds: ALL 79.11, AVG 76.72 (FDSE, Table 1).
Measured: Rotated digits (target r45, seed 0): id 0.907, ood 0.454.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "lgfedavg")
