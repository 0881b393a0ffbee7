"""SSFL: a labelled server, and clients that learn from pseudo-labels of the server's model; UAP's baseline.

Paper: Ahmed et al., "Unified alignment protocol", section 5: UAP with cross-entropy alone.

    python -m fdgjax.main --config=configs/ssfl.py --config.data.server=r0 --config.data.target=r45
    python -m fdgjax.main --config=configs/ssfl.py:uap_rotated_mnist --config.data.dir=DATA \\
        --config.data.server=r15 --config.data.target=r0

Published: Rotated MNIST, server r15, test r0: 77.4 (Table 9); PACS, server Cartoon, test Art painting: 64.65.
Measured: Rotated MNIST, model.width=0.25: 81.7; mean of all 30 pairs, three seeds, 57.6 (published: 50.5).
Rotated digits (server r0, target r45, seed 0): id 0.525, ood 0.425; half a minute. All 30 pairs: docs/results.md.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "ssfl")
