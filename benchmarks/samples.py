"""The random images that every contender trains on."""

import numpy as np

from benchmarks.jobs import Job
from benchmarks.models import CLASSES

POOL = 4096
"""Largest number of different images. Clients share them, so that memory is that of training, not of data."""


def random_samples(job: Job) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Images `[samples, H, W, 3]` as bytes, labels, and the rows of each client; always the same ones."""
    rng = np.random.default_rng(0)
    count = min(POOL, sum(job.images))
    images = rng.integers(0, 256, (count, job.image_size, job.image_size, 3), np.uint8)
    labels = rng.integers(0, CLASSES, count, np.int32)
    return images, labels, [rng.integers(0, count, each) for each in job.images]
