"""Losses and regularisers: what a client minimises."""

from fdgjax.objectives.contrastive import contrast, model_contrastive
from fdgjax.objectives.cross_entropy import cross_entropy
from fdgjax.objectives.proximal import proximal
from fdgjax.objectives.shifted import shifted

__all__ = ["contrast", "cross_entropy", "model_contrastive", "proximal", "shifted"]
