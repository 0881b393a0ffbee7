"""FDSE: a shared domain-agnostic feature extractor (DFE) and personal domain-specific skew erasers (DSE).

Paper: Wang et al., 2025; its protocol and official settings in the presets. Networks are built of DSE blocks.

    python -m fdgjax.main --config=configs/fdse.py
    python -m fdgjax.main --config=configs/fdse.py:fdse_pacs --config.data.dir=DATA

Published: PACS, one client per domain, after 500 rounds: ALL 83.81, AVG 82.17 (Table 1).
Measured: PACS, reduced (`fdse_pacs_small`, 20 rounds): ALL 0.629, AVG 0.613; five minutes (docs/results.md).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fdse")
