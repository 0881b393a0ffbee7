"""FedLGF's laws: FedAvg without its weights, each of which matters, and nothing more is sent."""

import numpy as np
import pytest

from fdgjax.engine.traffic import traffic
from fdgjax.utils.variables import bytes_of
from tests.toys import build, close, flat, make_case, make_plan, shared_case, shared_method, toy_federation

WHOLE = make_plan(drop_nonfinite=True)


@pytest.mark.slow
def test_without_weights_it_is_fedavg() -> None:
    fedavg = shared_case("fedavg", plan=WHOLE)
    bare = make_case(build("fedlgf", toy_federation(), local_flatness=0.0, global_flatness=0.0))
    close(bare.advance(3).server, fedavg.advance(3).server)


@pytest.mark.slow
def test_each_weight_and_the_perturbation_matter() -> None:
    fedavg = flat(shared_case("fedavg", plan=WHOLE).advance(1).server)
    found = [flat(shared_case("fedlgf", plan=WHOLE).advance(1).server)]
    for chosen in ({"local_flatness": 0.0}, {"global_flatness": 0.0}, {"perturbation": "weights"}):
        found.append(flat(make_case(build("fedlgf", toy_federation(), **chosen)).advance(1).server))
    for i, one in enumerate(found):
        for other in (fedavg, *found[:i]):
            assert not np.allclose(one, other, rtol=0, atol=1e-5)


def test_nothing_more_is_sent() -> None:
    mine, fedavgs = (traffic(shared_method(name), toy_federation()) for name in ("fedlgf", "fedavg"))
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent)
    assert bytes_of(mine.message) == bytes_of(fedavgs.message)
