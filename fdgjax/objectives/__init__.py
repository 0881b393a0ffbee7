"""Losses and regularisers: what a client minimises."""

from fdgjax.objectives.consistency import consistency_loss, consistent, statistics_only
from fdgjax.objectives.cross_entropy import cross_entropy
from fdgjax.objectives.proximal import proximal

__all__ = ["consistency_loss", "consistent", "cross_entropy", "proximal", "statistics_only"]
