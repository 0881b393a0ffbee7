"""pFedHN: a server hypernetwork learned from the mean of the client updates.

Paper: Shamsian et al., 2021; hyperparameters of hFedF v2, Table 10 (PACS column).

    python -m fdgjax.main --config=configs/pfedhn.py
    python -m fdgjax.main --config=configs/pfedhn.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, d = 1, after 200 rounds: id 60.3, ood 55.7 (hFedF v2, Table 11).
Measured: Rotated digits (target r45, seed 0): id 0.940, ood 0.776; half a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "pfedhn")
