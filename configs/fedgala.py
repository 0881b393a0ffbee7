"""FedGaLA: clients without labels, gradients aligned locally and globally.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedgala.py
    python -m fdgjax.main --config=configs/fedgala.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 64.7 (10 %), SimCLR inside (Table 1).
"""

from ml_collections import ConfigDict

from fdgjax.config import make_config
from fdgjax.presets import SMALL_SIMCLR, UNLABELLED_DIGITS


def get_config(dataset: str = "rotated_digits") -> ConfigDict:
    """The config of this method on a data set."""
    return make_config("fedgala", dataset, {"rotated_digits": UNLABELLED_DIGITS, "fedgala_pacs_small": SMALL_SIMCLR})
