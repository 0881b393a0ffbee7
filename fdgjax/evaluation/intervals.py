"""The interval of an accuracy that was measured on a number of images."""

import math

NORMAL = 1.959964
"""The quantile of the normal distribution that leaves 5 % outside, on both sides together."""


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `n` independent images (Wilson, "Probable inference, the law of succession,
    and statistical inference", 1927).

        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n),    p the share, z = 1.96

    Unlike `p -+ z sqrt(p (1 - p) / n)`, it stays within [0, 1] and is not empty where all or none are right.
    """
    square = NORMAL**2 / n
    centre, half = share + square / 2, NORMAL * math.sqrt(share * (1 - share) / n + square / (4 * n))
    # Rounding may pass the ends by a last digit where all or none are right.
    return max(0.0, (centre - half) / (1 + square)), min(1.0, (centre + half) / (1 + square))
