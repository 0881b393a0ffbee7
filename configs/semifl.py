"""SemiFL: clients without labels train on confident pseudo-labels, the server on its own labels.

Paper: Diao et al., 2022; protocol and comparison of UAP.

    python -m fdgjax.main --config=configs/semifl.py
    python -m fdgjax.main --config=configs/semifl.py:pacs --config.data.dir=DATA --config.data.target=art_painting

Published: PACS, target art_painting, server cartoon 52.20, photo 52.39, sketch 24.95 (UAP, Table 5).
Measured: Rotated digits (server r0, target r45, seed 0): id 0.425, ood 0.258; a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "semifl")
