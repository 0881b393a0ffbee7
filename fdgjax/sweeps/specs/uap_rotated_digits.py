"""SSFL and UAP on rotated digits, which need no data folder: all 30 pairs of a server's and a test domain, with the
configs' defaults.

fdgjax sweep uap_rotated_digits --out runs/uap-digits
"""

from collections.abc import Sequence

from fdgjax.data.sources.rotated import DOMAINS
from fdgjax.sweeps.cells import Cell, Scale
from fdgjax.sweeps.specs.uap_rotated_mnist import pairs
from fdgjax.utils.registry import lookup

SCALES = {"paper": Scale("rotated_digits")}


def cells(scale: str) -> Sequence[Cell]:
    """Every pair with both methods, side by side."""
    return pairs(lookup("scale", scale, SCALES), DOMAINS)
