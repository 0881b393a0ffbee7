"""FedAvg: the weighted mean of the clients' updates.

Paper: McMahan et al., 2017; hyperparameters of hFedF v2, Table 10 (PACS column).

    python -m fdgjax.main --config=configs/fedavg.py
    python -m fdgjax.main --config=configs/fedavg.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, d = 1, after 200 rounds: id 67.3, ood 57.8 (hFedF v2, Table 11).
Measured: Rotated digits (six targets, three seeds, docs/results.md): id 0.927, ood 0.768; half a minute.
PACS by hfedf_pacs, mean of four targets, three seeds: id 0.724, ood 0.500 (published: 0.701, 0.513).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedavg")
