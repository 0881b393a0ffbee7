"""Local: each client trains alone and sends nothing.

Paper: hFedF v2, section 5.1 (Local-Only), with FedAvg's hyperparameters.

    python -m fdgjax.main --config=configs/local.py
    python -m fdgjax.main --config=configs/local.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, d = 1, after 200 rounds: id 74.4, ood 41.9 (hFedF v2, Table 11).
Measured: Rotated digits (target r45, seed 0): id 0.933, ood 0.465; half a minute.
PACS, target photo, 20 rounds: id 0.670, ood 0.329; a quarter of an hour.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "local")
