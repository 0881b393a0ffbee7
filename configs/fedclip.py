"""FedCLIP: an adapter between a fixed encoder's features and given embeddings of the classes.

Paper: Lu et al., 2023; hyperparameters of its official code.

    python -m fdgjax.main --config=configs/fedclip.py
    python -m fdgjax.main --config=configs/fedclip.py:pretrained_pacs --config.model.frozen=-1 \\
        --config.data.dir=DATA --config.data.target=photo --config.method.class_embeddings=FILE.npy

Measured: the second command with --config.rounds=2, --config.data.image_size=32 and, as embeddings, the classes' mean
features over the three source domains minus the mean over all classes, seed 0: with `method.adapter=False` id 33.1, ood
33.8; with the published rate and decay id 34.0, ood 34.3; with `method.loss=classes` id 39.7, ood 28.4.
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fedclip")
