"""UAP, Tables 9 to 11: SSFL and UAP on rotated MNIST, all 30 pairs of a server's and a test domain.

    python -m launch.sweep launch/specs/uap_rotated_mnist.py --out runs/uap --data_dir DATA
    python -m launch.sweep launch/specs/uap_rotated_mnist.py --out runs/uap-small --data_dir DATA \
        --preset uap_rotated_mnist_small --only r15-r0 r45-r60 r60-r75

The paper's network and budget are for an accelerator; the preset `uap_rotated_mnist_small` is for a CPU, and
`rotated_digits` needs no data. Names: METHOD-SERVER-TEST.
"""

import importlib
from collections.abc import Sequence

from fdgjax.data.rotated import DOMAINS
from launch.sweep import Cell

PUBLISHED = {
    "r0": ((77.4, 56.0, 37.0, 23.5, 15.1), (81.9, 65.1, 55.7, 34.9, 20.9)),
    "r15": ((68.5, 67.2, 41.3, 38.7, 36.8), (84.3, 87.0, 63.4, 52.9, 31.0)),
    "r30": ((43.0, 71.6, 75.1, 54.8, 41.3), (59.4, 87.9, 84.1, 64.2, 47.9)),
    "r45": ((32.0, 50.2, 76.2, 70.6, 53.5), (47.4, 64.7, 89.8, 88.4, 66.3)),
    "r60": ((23.2, 40.1, 54.9, 76.9, 78.9), (30.0, 54.4, 73.2, 89.4, 87.9)),
    "r75": ((21.9, 28.2, 37.3, 46.6, 77.3), (24.6, 35.9, 60.2, 65.5, 81.6)),
}
"""By test domain: SSFL's and UAP's accuracies in percent, a column for each other domain as the server's, ascending.
Table 10 heads the third column of test domain r30 with r30; its place is r45's."""


def cells(preset: str) -> Sequence[Cell]:
    """Every pair with both methods, side by side."""
    preset = preset or "uap_rotated_mnist"
    found = []
    for test, rows in PUBLISHED.items():
        servers = [name for name in DOMAINS if name != test]
        for column, server in enumerate(servers):
            for method, row in zip(("ssfl", "uap"), rows, strict=True):
                config = importlib.import_module(f"configs.{method}").get_config(preset)
                config.data.update({"server": server, "target": test})
                # The paper's figures are for MNIST.
                published = row[column] / 100 if config.data.name == "rotated_mnist" else None
                found.append(Cell(f"{method}-{server}-{test}", config, published))
    return found
