"""hFedF: a server hypernetwork learned from aligned client updates, smoothed over rounds.

Paper: hFedF v2, Algorithm 1; hyperparameters of Table 10 (PACS column).

    python -m fdgjax.main --config=configs/hfedf.py
    python -m fdgjax.main --config=configs/hfedf.py:hfedf_pacs --config.data.dir=DATA --config.data.target=photo

Published: PACS, target photo, d = 1, after 200 rounds: id 70.9, ood 63.1 (Table 11).
Measured: Rotated digits (six targets, three seeds, docs/results.md): id 0.944, ood 0.735; half a minute.
PACS by hfedf_pacs, mean of four targets, three seeds: id 0.738, ood 0.535 (published: 0.715, 0.547).
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "hfedf")
