"""FedBYOL: BYOL at each client, encoders and projectors averaged.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedbyol.py
    python -m fdgjax.main --config=configs/fedbyol.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 52.1 (10 %) (Table 1).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedbyol")
