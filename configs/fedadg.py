"""FedADG: clients pull their features towards a reference distribution of their class, which they learn together.

Paper: Zhang et al., 2021, "Federated learning with domain generalization"; weights of its official code.

    python -m fdgjax.main --config=configs/fedadg.py
    python -m fdgjax.main --config=configs/fedadg.py:pacs --config.data.dir=DATA --config.data.target=photo
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedadg")
