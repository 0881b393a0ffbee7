"""hFedF: hypernetwork-based federated fusion (hFedF v2, Algorithm 1, Table 10).

python -m fdgjax.main --config=configs/hfedf.py                                    rotated digits, no download
python -m fdgjax.main --config=configs/hfedf.py:pacs --config.data.dir=DATA        real PACS, DATA/PACS/<domain>/...
"""

from ml_collections import ConfigDict

from fdgjax.config import make_config


def get_config(dataset: str = "rotated_digits") -> ConfigDict:
    """The config of this method on a data set; values from Table 10 where it has them."""
    return make_config("hfedf", dataset)
