"""Evaluation: id, ood, test, per-domain and worst-domain accuracy, and calibration."""

from fdgjax.evaluation.metrics import HEADLINES, Metrics, figures, measure
from fdgjax.evaluation.tally import Tallies, Tally, compile_evaluation, expected_calibration_error

__all__ = [
    "HEADLINES",
    "Metrics",
    "Tallies",
    "Tally",
    "compile_evaluation",
    "expected_calibration_error",
    "figures",
    "measure",
]
