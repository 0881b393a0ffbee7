"""Which cases run every time."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Cases for `parametrize` of which those in `quick` run in `make test` and the others in `make slow` alone: for a
    law whose cases take the same path through the code, so that a few find nearly all that all would find."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=() if case in quick else (pytest.mark.slow,)
        )
        for case in cases
    ]
