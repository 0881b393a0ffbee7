"""Losses and regularisers: what a client minimises."""

from fdgjax.objectives.cross_entropy import cross_entropy
from fdgjax.objectives.proximal import proximal

__all__ = ["cross_entropy", "proximal"]
