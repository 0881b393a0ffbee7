"""What noise has cost in privacy: epsilon of the rounds done, and the noise that an epsilon needs."""

from fdgjax.engine.privacy.accounting import Exposure, budget, check_accountant, needed_noise

__all__ = ["Exposure", "budget", "check_accountant", "needed_noise"]
