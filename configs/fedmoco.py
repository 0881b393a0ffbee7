"""FedMoCo: MoCo at each client, averaged.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedmoco.py
    python -m fdgjax.main --config=configs/fedmoco.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 58.5 (10 %) (Table 1).
Measured: Rotated digits (target r45, seed 0, weighting=uniform): probe 0.632 (10 %), 0.821 (30 %).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedmoco")
