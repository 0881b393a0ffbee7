"""Losses and regularisers: what a client minimises."""

from fdgjax.objectives.consistency import consistency_loss, consistent, statistics_only
from fdgjax.objectives.contrastive import contrast, model_contrastive
from fdgjax.objectives.cross_entropy import cross_entropy
from fdgjax.objectives.proximal import proximal
from fdgjax.objectives.shifted import shifted

__all__ = [
    "consistency_loss",
    "consistent",
    "contrast",
    "cross_entropy",
    "model_contrastive",
    "proximal",
    "shifted",
    "statistics_only",
]
