"""RSCFed: clients learn from mean teachers, and the server aggregates the consensus of several random subsets.

Paper: Liang et al., 2022; protocol and comparison of UAP.

    python -m fdgjax.main --config=configs/rscfed.py
    python -m fdgjax.main --config=configs/rscfed.py:pacs --config.data.dir=DATA --config.data.target=art_painting

Published: PACS, target art_painting, server cartoon 65.91, photo 14.40, sketch 31.20 (UAP, Table 5).
Measured: Rotated digits (server r0, target r45, seed 0): id 0.383, ood 0.197; a minute.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "rscfed")
