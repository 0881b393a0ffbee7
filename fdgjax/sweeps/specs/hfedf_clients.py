"""hFedF v2, Figure 4: PACS with an increasing number of clients, d = 1 and 3.

    fdgjax reproduce hfedf-clients --out runs/hfedf-clients --data_dir DATA

The paper shows curves: no figures are published, and the numbers of clients are ours. At the scale `cpu` the unseen
domain is photo (as in v1, Figure 9) and d is 1. Names: METHOD-dD-CLIENTS-TARGET.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, at_scale
from fdgjax.sweeps.specs.hfedf_pacs import FIGURES, SCALES, TARGETS
from fdgjax.utils.registry import lookup

METHODS = ("hfedf", "fedavg", "fedsr")
CLIENTS = (3, 6, 9, 12)
ALL, REDUCED = ((1, 3), TARGETS), ((1,), ("photo",))
"""Values of d and unseen domains, at the paper's scale and at a reduced one."""


def cells(scale: str) -> Sequence[Cell]:
    """All methods with one number of clients, then with the next."""
    chosen = lookup("scale", scale, SCALES)
    domains, targets = REDUCED if chosen.reduced else ALL
    return [
        at_scale(
            f"{method}-d{d}-{clients}-{target}",
            method,
            chosen,
            FIGURES,
            f"{method}-d{d}-{clients}",
            data={"target": target, "domains_per_client": d, "clients": clients},
        )
        for d in domains
        for target in targets
        for clients in CLIENTS
        for method in METHODS
    ]
