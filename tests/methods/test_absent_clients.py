"""A client that takes no part keeps what it has: SCAFFOLD's control variates, FedDyn's linear terms."""

import numpy as np
import pytest

from tests.toys import copy, flat, make_plan, poison, row, shared_case

pytestmark = pytest.mark.slow

WHOLE = make_plan(drop_nonfinite=True)


@pytest.mark.parametrize("name", ["feddyn", "scaffold"])
def test_a_client_left_out_keeps_its_memory(name: str) -> None:
    case = shared_case(name, plan=WHOLE)
    state = case.advance(1)
    before = copy(row(state.clients, 1))
    state, _ = case.round(state, poison(case.federation, 1))
    np.testing.assert_array_equal(flat(row(state.clients, 1)), flat(before))
    assert np.abs(flat(before)).max() > 0
