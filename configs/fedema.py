"""FedEMA: BYOL at each client, each round from a mixture of the client's last model and the global one.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedema.py
    python -m fdgjax.main --config=configs/fedema.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 50.0 (10 %), 33.9 (30 %) (Table 1).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedema")
