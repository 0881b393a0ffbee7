"""FedEMA: BYOL at each client, from a mixture of its own last model and the mean.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedema.py
    python -m fdgjax.main --config=configs/fedema.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 50.0 (10 %), 33.9 (30 %) (Table 1).
"""

from ml_collections import ConfigDict

from fdgjax.config import make_config
from fdgjax.config.presets import UNLABELLED_DIGITS


def get_config(dataset: str = "rotated_digits") -> ConfigDict:
    """The config of this method on a data set."""
    return make_config("fedema", dataset, {"rotated_digits": UNLABELLED_DIGITS})
