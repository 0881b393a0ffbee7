"""FedHEAL: parameters with inconsistent updates are masked, and clients that move farther get larger weights.

Paper: Chen et al., 2024; tau of FDSE, A7.4.

    python -m fdgjax.main --config=configs/fedheal.py
    python -m fdgjax.main --config=configs/fedheal.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, every domain, AlexNet, 500 rounds: ALL 75.46, AVG 73.51 (FDSE, Table 1).
Measured: Rotated digits (target r45, seed 0): id 0.920, ood 0.926; half a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedheal")
