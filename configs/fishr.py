"""Fishr on pooled data, a reference without federation.

Paper: Rame et al., 2022: gradients with the same variance in every domain.

    python -m fdgjax.main --config=configs/fishr.py
    python -m fdgjax.main --config=configs/fishr.py:pacs --config.data.dir=DATA --config.data.target=photo

Measured: Rotated digits (target r45, 30 rounds, mean of seeds 0 to 2): id 0.904, ood 0.829.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fishr")
