"""FedDG-GA: FedAvg with larger weights for clients with a larger generalization gap.

Paper: Zhang et al., 2023; step size and its decay from the official code.

    python -m fdgjax.main --config=configs/feddg_ga.py
    python -m fdgjax.main --config=configs/feddg_ga.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: on pseudo-labels, PACS, target art painting, server cartoon / photo / sketch: 24.46 / 18.50 / 17.72 (UAP,
Table 5).
Measured: Rotated digits (target r45, seed 0): id 0.920, ood 0.930; a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "feddg_ga")
