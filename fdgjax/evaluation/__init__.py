"""Evaluation: id, ood, test, per-domain and worst-domain accuracy, calibration, linear probes, domain shift, and the
round that is reported."""

from fdgjax.evaluation.metrics import (
    FIGURE_KEYS,
    HEADLINES,
    SHOWN,
    Metrics,
    figures,
    is_evaluated,
    measure,
    measure_probe,
)
from fdgjax.evaluation.tally import (
    Tallies,
    Tally,
    compile_evaluation,
    compile_representation,
    expected_calibration_error,
)

__all__ = [
    "FIGURE_KEYS",
    "HEADLINES",
    "SHOWN",
    "Metrics",
    "Tallies",
    "Tally",
    "compile_evaluation",
    "compile_representation",
    "expected_calibration_error",
    "figures",
    "is_evaluated",
    "measure",
    "measure_probe",
]
