"""Evaluation: id, ood, per-domain and worst-domain accuracy, and calibration."""

from fdgjax.evaluation.metrics import Metrics, measure
from fdgjax.evaluation.tally import Tallies, Tally, compile_evaluation, expected_calibration_error

__all__ = ["Metrics", "Tallies", "Tally", "compile_evaluation", "expected_calibration_error", "measure"]
