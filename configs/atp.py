"""ATP: FedAvg that learns, from its labelled clients, how far each layer adapts to an unseen domain without labels.

Paper: Bao et al., NeurIPS 2023; hyperparameters of its official code.

    python -m fdgjax.main --config=configs/atp.py
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "atp")
