"""CBAFed: clients without labels train on pseudo-labels above thresholds that are lower for rare classes.

Paper: Li et al., 2023; protocol and comparison of UAP.

    python -m fdgjax.main --config=configs/cbafed.py
    python -m fdgjax.main --config=configs/cbafed.py:pacs --config.data.dir=DATA --config.data.target=art_painting

Published: PACS, target art_painting, server cartoon 45.41, photo 48.49, sketch 15.33 (UAP, Table 5).
Measured: Rotated digits (server r0, target r45, seed 0): id 0.433, ood 0.304; a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "cbafed")
