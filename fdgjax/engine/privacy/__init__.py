"""Differential privacy: clipping and noise in a round, DP-SGD, their cost (epsilon), and what a method would reveal."""

from fdgjax.engine.privacy.accounting import Exposure, budget, check_accountant, check_noise, needed_noise, spent

__all__ = ["Exposure", "budget", "check_accountant", "check_noise", "needed_noise", "spent"]
