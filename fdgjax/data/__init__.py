"""Data sets as arrays of labelled images from several domains, and how they are shared out among clients."""

from fdgjax.data.domains import Domains
from fdgjax.data.loading import DATASETS, load
from fdgjax.data.splits import few_shot, hold_out, label_histogram, source_domains, split_domains, three_parts

__all__ = [
    "DATASETS",
    "Domains",
    "few_shot",
    "hold_out",
    "label_histogram",
    "load",
    "source_domains",
    "split_domains",
    "three_parts",
]
