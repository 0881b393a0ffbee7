"""LG-FedAvg is FedAvg above a cut through the model and Local below it."""

import jax
import pytest

from fdgjax.methods.lgfedavg import LGFedAvg
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten, label_table, select
from tests.toy_models import tiny_model
from tests.toys import build, close, make_case, make_plan, shared_case, toy_federation

WHOLE = make_plan(drop_nonfinite=True)


@pytest.mark.slow
def test_with_all_layers_it_is_fedavg_and_with_none_local() -> None:
    federation = toy_federation()
    close(
        make_case(build("lgfedavg", federation, global_layers=2)).advance(2),
        shared_case("fedavg", plan=WHOLE).advance(2),
    )
    none = build("lgfedavg", federation, global_layers=0)
    assert {none.label(path) for path in flatten(tiny_model().init(jax.random.key(0)))} == {"local"}


@pytest.mark.slow
def test_one_round_from_the_same_start_moves_the_head_as_fedavg_and_the_rest_as_local() -> None:
    mine, fedavg, local = (shared_case(name, plan=WHOLE).advance(1) for name in ("lgfedavg", "fedavg", "local"))
    label = LABELS.__getitem__
    close(mine.server.variables, select(fedavg.server.variables, label, "shared"))
    close(mine.clients.local, select(local.clients.local, label, "local"))
    assert mine.server.variables["params"].keys() == {"linear_2"}


LABELS = label_table(
    jax.eval_shape(tiny_model("norm").init, jax.random.key(0)), build("lgfedavg", toy_federation(), "norm").label
)


def test_batch_norm_goes_with_its_layer() -> None:
    shared = {path for path, word in LABELS.items() if word == "shared"}
    assert shared == {"params/linear_2/kernel", "params/linear_2/bias"}
    both = build("lgfedavg", toy_federation(), "norm", global_layers=2).label
    assert {both(path) for path in LABELS} == {"shared"}


@pytest.mark.parametrize("layers", [-1, 3])
def test_a_number_of_layers_that_the_model_has_not_is_refused_in_one_line(layers: int) -> None:
    with pytest.raises(UserError, match=f"global_layers got {layers}; expected 0 to 2") as error:
        build("lgfedavg", toy_federation(), global_layers=layers)
    assert "\n" not in str(error.value)
    assert LGFedAvg().global_layers == 1
