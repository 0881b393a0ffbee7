"""FedGMA: FedAvg in which an update counts in full only where clients agree on its sign.

Paper: Tenison et al., 2023; hyperparameters of hFedF v2, Table 10 (PACS column).

    python -m fdgjax.main --config=configs/fedgma.py
    python -m fdgjax.main --config=configs/fedgma.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, d = 1, after 200 rounds: id 65.3, ood 56.3 (hFedF v2, Table 11). On pseudo-labels, PACS,
target art painting, server cartoon / photo / sketch: 41.11 / 16.94 / 27.93 (UAP, Table 5).
Measured: Rotated digits (target r45, seed 0): id 0.920, ood 0.916; a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedgma")
