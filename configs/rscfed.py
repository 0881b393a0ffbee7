"""RSCFed: clients follow their teachers, the server the consensus of several sub-sets of clients.

Paper: Liang et al., 2022; protocol and comparison of UAP.

    python -m fdgjax.main --config=configs/rscfed.py
    python -m fdgjax.main --config=configs/rscfed.py:pacs --config.data.dir=DATA --config.data.target=art_painting

Published: PACS, target art_painting, server cartoon 65.91, photo 14.40, sketch 31.20 (UAP, Table 5).
Measured: Rotated digits (server r0, target r45, seed 0): id 0.217, ood 0.181; a minute.
"""

from ml_collections import ConfigDict

from fdgjax.config import make_config
from fdgjax.config.presets import SERVED_DIGITS


def get_config(dataset: str = "rotated_digits") -> ConfigDict:
    """The config of this method on a data set."""
    return make_config("rscfed", dataset, {"rotated_digits": SERVED_DIGITS})
