"""MOON's laws: FedAvg without the contrast and in the first round, and what a client keeps."""

import numpy as np
import pytest

from fdgjax.engine.traffic import traffic
from fdgjax.utils.variables import bytes_of
from tests.toys import (
    build,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    poison,
    row,
    shared_case,
    shared_method,
    toy_federation,
)

WHOLE = make_plan(drop_nonfinite=True)


@pytest.mark.slow
def test_without_its_term_it_is_fedavg() -> None:
    fedavg = shared_case("fedavg", "wide", WHOLE)
    bare = make_case(build("moon", toy_federation(), mu=0.0))
    close(bare.advance(3).server, fedavg.advance(3).server)


@pytest.mark.slow
def test_the_first_round_is_fedavgs_and_the_second_is_not() -> None:
    """Received and previous model are both the initial one, so that nothing pulls either way."""
    fedavg, case = (shared_case(name, "wide", WHOLE) for name in ("fedavg", "moon"))
    close(case.advance(1).server, fedavg.advance(1).server)
    assert not np.allclose(flat(case.advance(2).server), flat(fedavg.advance(2).server), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_client_keeps_its_model_of_the_last_round_it_counted_in() -> None:
    case, locally = (shared_case(name, "wide", WHOLE) for name in ("moon", "local"))
    state = case.advance(1)
    # In a first round Local's clients train as FedAvg's do.
    close(state.clients.more, locally.advance(1).clients.local)
    before = copy(row(state.clients, 1))
    state, _ = case.round(state, poison(case.federation, 1))
    np.testing.assert_array_equal(flat(row(state.clients, 1)), flat(before))
    assert not np.array_equal(flat(row(state.clients, 0)), flat(before))


def test_previous_models_do_not_travel() -> None:
    mine, fedavgs = (traffic(shared_method(name, "wide"), toy_federation()) for name in ("moon", "fedavg"))
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent)
    assert bytes_of(mine.message) == bytes_of(fedavgs.message)
