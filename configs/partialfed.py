"""PartialFed: each client loads some layers of the global model and keeps its own others, by a policy it learns.

Paper: Sun et al., 2021; hyperparameters of hFedF v2, Table 10 for FedAvg.

    python -m fdgjax.main --config=configs/partialfed.py
    python -m fdgjax.main --config=configs/partialfed.py:fdse_pacs --config.data.dir=DATA

Published: PACS, one client per domain, after 500 rounds: ALL 81.22, AVG 79.18 (FDSE, Table 1).
Measured: Rotated digits (target r45, seed 0): id 0.940, ood 0.612.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "partialfed")
