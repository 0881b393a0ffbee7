"""FedSimSiam: SimSiam at each client, encoders and projectors averaged.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedsimsiam.py
    python -m fdgjax.main --config=configs/fedsimsiam.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 46.2 (10 %) (Table 1).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedsimsiam")
