"""FedGaLA: clients without labels, gradients aligned locally and globally.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedgala.py
    python -m fdgjax.main --config=configs/fedgala.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 64.7 (10 %), SimCLR inside (Table 1).
Measured: PACS, reduced (`fedgala_pacs_small`, 40 rounds, dropped=zero): probe of sketch 0.493 (10 %), 0.545 (30 %);
with sign=as_published 0.542, 0.593; fifteen minutes on one core (docs/results.md).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedgala")
