"""Layers that stay fast inside compiled loops and with a client axis: convolution, pooling, BatchNorm, GroupNorm, and
their Flax modules."""

from fdgjax.nn.convolution import conv2d
from fdgjax.nn.group_normalisation import GroupNorm
from fdgjax.nn.layers import INITIALISATIONS, Conv, ConvTranspose, Dense, Initialisation, initialisation
from fdgjax.nn.normalisation import (
    BatchNorm,
    BatchStatistics,
    recording_moments,
    unit_length,
    with_mask,
    with_statistics,
)
from fdgjax.nn.pooling import adaptive_avg_pool, avg_pool, max_pool

__all__ = [
    "INITIALISATIONS",
    "BatchNorm",
    "BatchStatistics",
    "Conv",
    "ConvTranspose",
    "Dense",
    "GroupNorm",
    "Initialisation",
    "adaptive_avg_pool",
    "avg_pool",
    "conv2d",
    "initialisation",
    "max_pool",
    "recording_moments",
    "unit_length",
    "with_mask",
    "with_statistics",
]
