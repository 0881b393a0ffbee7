"""FPL: clients learn with clusters of all clients' prototypes, and with their mean.

Paper: Huang et al., 2023; weights and temperature of its official code.

    python -m fdgjax.main --config=configs/fpl.py
    python -m fdgjax.main --config=configs/fpl.py:pacs --config.data.dir=DATA --config.data.target=photo
"""

from functools import partial

from fdgjax.config import make_config

get_config = partial(make_config, "fpl")
