"""ATP: FedAvg that learns, from its labelled clients, how far each layer adapts to an unseen domain without labels.

Paper: Bao et al., NeurIPS 2023; hyperparameters of its official code.

    python -m fdgjax.main --config=configs/atp.py --config.model.unit=norm
    python -m fdgjax.main --config=configs/atp.py --config.model.unit=norm --config.method.beside=True

Measured: rotated digits with --config.rounds=2, seed 0, ood before -> after adaptation: 13.4 -> 14.4 by the first
command, whose second round trains the rates alone; 61.9 -> 63.9 by the second.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "atp")
