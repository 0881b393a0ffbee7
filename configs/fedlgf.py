"""FedLGF: predictions that adversarial perturbations of the last layer leave alone.

Paper: Yan and Guo, ECCV 2024; settings of its official command for PACS.

    python -m fdgjax.main --config=configs/fedlgf.py
    python -m fdgjax.main --config=configs/fedlgf.py:pacs --config.data.dir=DATA --config.data.target=photo

Measured: Rotated digits (target r45, seed 0): id 0.920, ood 0.933.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedlgf")
