"""FedBN: FedAvg whose clients keep their BatchNorm layers.

Paper: Li et al., 2021; FDSE's protocol and settings in the presets.

    python -m fdgjax.main --config=configs/fedbn.py
    python -m fdgjax.main --config=configs/fedbn.py:fdse_pacs --config.data.dir=DATA

Published: PACS, one client per domain, after 500 rounds: ALL 81.58, AVG 79.47 (FDSE, Table 1).
Measured: PACS, reduced (`fdse_pacs_small`, 20 rounds): ALL 0.647, AVG 0.619; five minutes (docs/results.md).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedbn")
