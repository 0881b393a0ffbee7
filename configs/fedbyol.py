"""FedBYOL: BYOL at each client, encoders and projectors averaged.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedbyol.py
    python -m fdgjax.main --config=configs/fedbyol.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 52.1 (10 %) (Table 1).
"""

from ml_collections import ConfigDict

from fdgjax.config import make_config
from fdgjax.config.presets import UNLABELLED_DIGITS


def get_config(dataset: str = "rotated_digits") -> ConfigDict:
    """The config of this method on a data set."""
    return make_config("fedbyol", dataset, {"rotated_digits": UNLABELLED_DIGITS})
