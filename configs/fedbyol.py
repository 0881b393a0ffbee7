"""TODO

python -m fdgjax.main --config=configs/fedbyol.py
"""

from ml_collections import ConfigDict

from fdgjax.config import make_config


def get_config(dataset: str = "rotated_digits") -> ConfigDict:
    """The config of this method on a data set."""
    return make_config("fedbyol", dataset)
