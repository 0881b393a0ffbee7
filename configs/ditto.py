"""Ditto: FedAvg, and for each client a personal model regularised towards the global one.

Paper: Li et al., 2021; hyperparameters of FDSE, A7.4, and of hFedF v2, Table 10 for FedAvg.

    python -m fdgjax.main --config=configs/ditto.py
    python -m fdgjax.main --config=configs/ditto.py:fdse_pacs --config.data.dir=DATA

Published: PACS, one client per domain, after 500 rounds: ALL 82.02, AVG 80.03 (FDSE, Table 1).
Measured: Rotated digits (target r45, seed 0): id 0.927, ood 0.923; a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "ditto")
