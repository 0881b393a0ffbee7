"""UAP, Tables 9 to 11: SSFL and UAP on rotated MNIST, all 30 pairs of a server's and a test domain.

    fdgjax reproduce uap-rotated-mnist --out runs/uap --data_dir DATA
    fdgjax reproduce uap-rotated-mnist --out runs/uap-cpu --data_dir DATA --scale cpu --only r15-r0 r45-r60

As in the paper all domains show the same 1,000 images. Names: METHOD-SERVER-TEST. On one core a run takes three to five
minutes, with `--scale cpu` one and a half.
"""

from collections.abc import Sequence

from fdgjax.data.sources.rotated import DOMAINS
from fdgjax.sweeps.cells import Cell, Scale, at_scale
from fdgjax.utils.registry import lookup

SCALES = {
    "paper": Scale("uap_rotated_mnist"),
    "cpu": Scale("uap_rotated_mnist", {"model": {"width": 0.25}}, "a quarter of the network's channels and features"),
}
METHODS = ("ssfl", "uap")
STAND_IN = "the paper takes FedSR's network, taken here to be DIRT's, and does not say which 1,000 images"


def cells(scale: str) -> Sequence[Cell]:
    """Every pair with both methods, side by side."""
    return pairs(lookup("scale", scale, SCALES), DOMAINS, STAND_IN)


def pairs(scale: Scale, domains: Sequence[str], note: str = "") -> Sequence[Cell]:
    """SSFL and UAP with each domain at the server and each other one unseen."""
    return [
        at_scale(
            f"{method}-{server}-{test}",
            method,
            scale,
            ("ood_accuracy",),
            "",
            note,
            data={"server": server, "target": test},
        )
        for test in domains
        for server in domains
        if server != test
        for method in METHODS
    ]
