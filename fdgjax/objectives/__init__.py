"""Losses and regularisers that clients minimise."""

from fdgjax.objectives.agreement import jensen_shannon, supervised_contrast
from fdgjax.objectives.aligned import aligned_domains
from fdgjax.objectives.consistency import consistency_loss, consistent, statistics_only
from fdgjax.objectives.contrastive import contrast, model_contrastive
from fdgjax.objectives.covariance import covariance_matching, feature_covariance, off_diagonal_covariance
from fdgjax.objectives.cross_entropy import cross_entropy, each_cross_entropy, mean_cross_entropy
from fdgjax.objectives.discrepancy import contrastive_domain_discrepancy, mmd, random_classes
from fdgjax.objectives.mean_teacher import followed, mean_teacher, new_teacher, student_of
from fdgjax.objectives.mixed import fixed_and_mixed
from fdgjax.objectives.proximal import proximal
from fdgjax.objectives.representation import gaussian_divergence, mean_length, mean_squared_length
from fdgjax.objectives.self_supervised import info_nce, negative_cosine, nt_xent
from fdgjax.objectives.sharpness import moved_back, sharpness_aware
from fdgjax.objectives.shifted import shifted
from fdgjax.objectives.transformed import also_transformed
from fdgjax.objectives.unlabelled import entropies, entropy, information_maximisation, replaced_statistics
from fdgjax.objectives.viewed import on_view

__all__ = [
    "aligned_domains",
    "also_transformed",
    "consistency_loss",
    "consistent",
    "contrast",
    "contrastive_domain_discrepancy",
    "covariance_matching",
    "cross_entropy",
    "each_cross_entropy",
    "entropies",
    "entropy",
    "feature_covariance",
    "fixed_and_mixed",
    "followed",
    "gaussian_divergence",
    "info_nce",
    "information_maximisation",
    "jensen_shannon",
    "mean_cross_entropy",
    "mean_length",
    "mean_squared_length",
    "mean_teacher",
    "mmd",
    "model_contrastive",
    "moved_back",
    "negative_cosine",
    "new_teacher",
    "nt_xent",
    "off_diagonal_covariance",
    "on_view",
    "proximal",
    "random_classes",
    "replaced_statistics",
    "sharpness_aware",
    "shifted",
    "statistics_only",
    "student_of",
    "supervised_contrast",
]
