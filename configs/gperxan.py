"""gPerXAN: norms that mix local BatchNorm and shared InstanceNorm, and a guiding classifier.

Paper: Le et al., CVPR 2024; lambda of its official code.

    python -m fdgjax.main --config=configs/gperxan.py
    python -m fdgjax.main --config=configs/gperxan.py:pacs --config.data.dir=DATA --config.data.target=photo

Measured: rotated digits, mean of six targets, three seeds, 30 rounds:
id 95.9, ood 77.0 (FedAvg with BatchNorm 93.6 and 77.0); docs/results.md.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "gperxan")
