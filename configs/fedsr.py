"""FedSR: FedAvg with a random representation, regularised in L2 norm (L2R) and conditional mutual information (CMI).

Paper: Nguyen et al., 2022; hyperparameters of hFedF v2, Table 10 (PACS column).

    python -m fdgjax.main --config=configs/fedsr.py
    python -m fdgjax.main --config=configs/fedsr.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, d = 1, after 200 rounds: id 67.3, ood 56.0 (hFedF v2, Table 11). On pseudo-labels, PACS,
target art painting, server cartoon / photo / sketch: 29.34 / 19.94 / 27.49 (UAP, Table 5).
Measured: Rotated digits (target r45, seed 0): id 0.940, ood 0.826; a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedsr")
