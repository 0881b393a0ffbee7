"""FedMoCo: MoCo at each client, averaged.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedmoco.py
    python -m fdgjax.main --config=configs/fedmoco.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 58.5 (10 %) (Table 1).
Measured: Rotated digits (target r45, seed 0): probe 0.632 (10 %), 0.821 (30 %).
"""

from ml_collections import ConfigDict

from fdgjax.config import make_config
from fdgjax.config.presets import UNLABELLED_DIGITS


def get_config(dataset: str = "rotated_digits") -> ConfigDict:
    """The config of this method on a data set."""
    return make_config("fedmoco", dataset, {"rotated_digits": UNLABELLED_DIGITS})
