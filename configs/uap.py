"""UAP: a labelled server and clients without labels, features aligned to the classes' Gaussians.

Paper: Ahmed et al., "Unified alignment protocol", section 4; alpha = beta = 1, lambda = 0.01, gamma = 100.

    python -m fdgjax.main --config=configs/uap.py --config.data.server=r0 --config.data.target=r45
    python -m fdgjax.main --config=configs/uap.py:uap_rotated_mnist --config.data.dir=DATA \\
        --config.data.server=r15 --config.data.target=r0

Published: Rotated MNIST, server r15, test r0: 81.9 (Table 9); PACS, server Cartoon, test Art painting: 75.73.
Measured: Rotated MNIST, model.width=0.25: 87.2; mean of all 30 pairs, three seeds, 65.2 (published: 62.7).
Rotated digits (server r0, target r45, seed 0): id 0.533, ood 0.475; half a minute.
All 30 pairs, with least_samples=1 (here 0.550, 0.502): docs/results.md.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "uap")
