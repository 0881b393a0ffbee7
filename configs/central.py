"""Central: centralised training on the pooled data, the reference without federation.

Paper: hFedF v2, section 5.1, with FedAvg's hyperparameters.

    python -m fdgjax.main --config=configs/central.py
    python -m fdgjax.main --config=configs/central.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, d = 3, after 200 rounds: id 74.9, ood 65.0 (hFedF v2, Table 13).
Measured: Rotated digits (target r45, seed 0): id 0.953, ood 0.926; half a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "central")
