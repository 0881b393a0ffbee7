"""Fish on pooled data, a reference without federation; with `--config.method.pooled=False` at each client.

Paper: Shi et al., 2022, as in DomainBed: a share of the steps from domain to domain.

    python -m fdgjax.main --config=configs/fish.py
    python -m fdgjax.main --config=configs/fish.py:pacs --config.data.dir=DATA --config.data.target=photo
    python -m fdgjax.main --config=configs/fish.py:pacs --config.data.dir=DATA --config.data.target=photo \\
        --config.method.pooled=False --config.data.homogeneity=0.5
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fish")
