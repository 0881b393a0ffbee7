"""Evaluation: id, ood, test, per-domain and worst-domain accuracy, calibration, linear probes, domain shift, and the
round that is reported."""

from fdgjax.evaluation.metrics import (
    HEADLINES,
    Metrics,
    figure_keys,
    figures,
    is_evaluated,
    measure,
    measure_probe,
    short_names,
)
from fdgjax.evaluation.tally import (
    Tallies,
    Tally,
    compile_evaluation,
    compile_representation,
    expected_calibration_error,
)

__all__ = [
    "HEADLINES",
    "Metrics",
    "Tallies",
    "Tally",
    "compile_evaluation",
    "compile_representation",
    "expected_calibration_error",
    "figure_keys",
    "figures",
    "is_evaluated",
    "measure",
    "measure_probe",
    "short_names",
]
