"""FedSimCLR: SimCLR at each client, averaged; FedGaLA without its alignments.

Paper: "Federated unsupervised domain generalization using global and local alignment of gradients", appendix D.

    python -m fdgjax.main --config=configs/fedsimclr.py
    python -m fdgjax.main --config=configs/fedsimclr.py:fedgala_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, linear probe after 100 rounds: 64.2 (10 %) (Table 1).
Measured: PACS, reduced (`fedgala_pacs_small`, 40 rounds, weighting=uniform): probe of sketch 0.572 (10 %), 0.627
(30 %); fifteen minutes on one core (docs/results.md).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedsimclr")
