"""FedDyn: a dynamic regulariser that aligns the clients' local optima with the global one.

Paper: Acar et al., 2021; alpha of FDSE, A7.4.

    python -m fdgjax.main --config=configs/feddyn.py
    python -m fdgjax.main --config=configs/feddyn.py:pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, every domain, AlexNet, 500 rounds: ALL 74.92, AVG 73.19 (FDSE, Table 1).
Measured: Rotated digits (target r45, seed 0): id 0.933, ood 0.853; half a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "feddyn")
