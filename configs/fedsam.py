"""FedProx: FedAvg with a proximal term to the received model.

Paper: Li et al., 2020; hyperparameters of hFedF v2, Table 10 (PACS column).

    python -m fdgjax.main --config=configs/fedsam.py
    python -m fdgjax.main --config=configs/fedsam.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, d = 1, after 200 rounds: id 67.2, ood 56.1 (hFedF v2, Table 11).
Measured: Rotated digits (target r45, seed 0): id 0.920, ood 0.933; half a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedsam")
