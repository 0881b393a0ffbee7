"""FedSimCLR: SimCLR at each client, averaged; FedGaLA without its alignments.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedsimclr.py
    python -m fdgjax.main --config=configs/fedsimclr.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 64.2 (10 %) (Table 1).
Measured: PACS, reduced (`fedgala_pacs_small`, 40 rounds): probe of sketch 0.572 (10 %), 0.627 (30 %);
fifteen minutes on one core (docs/results.md).
"""

from ml_collections import ConfigDict

from fdgjax.config import make_config
from fdgjax.config.presets import SMALL_SIMCLR, UNLABELLED_DIGITS


def get_config(dataset: str = "rotated_digits") -> ConfigDict:
    """The config of this method on a data set."""
    return make_config("fedsimclr", dataset, {"rotated_digits": UNLABELLED_DIGITS, "fedgala_pacs_small": SMALL_SIMCLR})
