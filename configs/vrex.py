"""VREx on pooled data, a reference without federation; with `--config.method.pooled=False` at each client.

Paper: Krueger et al., 2021, as in DomainBed: equal losses in every domain.

    python -m fdgjax.main --config=configs/vrex.py
    python -m fdgjax.main --config=configs/vrex.py:pacs --config.data.dir=DATA --config.data.target=photo
    python -m fdgjax.main --config=configs/vrex.py:pacs --config.data.dir=DATA --config.data.target=photo \\
        --config.method.pooled=False --config.data.homogeneity=0.5
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "vrex")
