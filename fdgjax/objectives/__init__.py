"""Losses and regularisers: what a client minimises."""

from fdgjax.objectives.consistency import consistency_loss, consistent, statistics_only
from fdgjax.objectives.contrastive import contrast, model_contrastive
from fdgjax.objectives.covariance import covariance, covariance_matching, off_diagonal_covariance
from fdgjax.objectives.cross_entropy import cross_entropy, mean_cross_entropy
from fdgjax.objectives.discrepancy import contrastive_domain_discrepancy, mmd, random_classes
from fdgjax.objectives.proximal import proximal
from fdgjax.objectives.self_supervised import info_nce, negative_cosine, nt_xent
from fdgjax.objectives.shifted import shifted

__all__ = [
    "consistency_loss",
    "consistent",
    "contrast",
    "contrastive_domain_discrepancy",
    "covariance",
    "covariance_matching",
    "cross_entropy",
    "info_nce",
    "mean_cross_entropy",
    "mmd",
    "model_contrastive",
    "negative_cosine",
    "nt_xent",
    "off_diagonal_covariance",
    "proximal",
    "random_classes",
    "shifted",
    "statistics_only",
]
