"""FedProto: clients keep their models and share the mean features of each class.

Paper: Tan et al., 2022; weight of its official code.

    python -m fdgjax.main --config=configs/fedproto.py
    python -m fdgjax.main --config=configs/fedproto.py:pacs --config.data.dir=DATA --config.data.target=photo
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedproto")
