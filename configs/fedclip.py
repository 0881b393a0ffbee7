"""FedCLIP: an adapter between a fixed encoder's features and given embeddings of the classes.

Paper: Lu et al., 2023; hyperparameters of its official code.

    python -m fdgjax.main --config=configs/fedclip.py
    python -m fdgjax.main --config=configs/fedclip.py:pretrained_pacs --config.model.frozen=-1 \
        --config.data.dir=DATA --config.data.target=photo --config.method.class_embeddings=FILE.npy
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedclip")
