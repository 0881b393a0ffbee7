"""StableFDG: clients share and explore the styles of features, and attention highlights what a class has in common.

Paper: Park et al., 2023; hyperparameters of its official code.

    python -m fdgjax.main --config=configs/stablefdg.py
    python -m fdgjax.main --config=configs/stablefdg.py:pacs --config.data.dir=DATA --config.data.target=photo

Measured: the second command with --config.rounds=2, seed 0: id 27.6, ood 15.0.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "stablefdg")
