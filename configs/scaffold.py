"""SCAFFOLD: local gradients corrected by control variates, against client drift.

Paper: Karimireddy et al., 2020; learning rates of FDSE, A7.4.

    python -m fdgjax.main --config=configs/scaffold.py
    python -m fdgjax.main --config=configs/scaffold.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, every domain, AlexNet, 500 rounds: ALL 76.30, AVG 74.26 (FDSE, Table 1).
Measured: Rotated digits (target r45, seed 0): id 0.933, ood 0.886; half a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "scaffold")
