"""FedMoCo: what becomes of target and queue, and the official head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Setup
from fdgjax.engine.traffic import traffic
from fdgjax.methods import METHODS
from fdgjax.models import HEADS
from fdgjax.models.client_model import as_model
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import label_table
from tests.toy_models import IMAGE, DenseNet
from tests.toys import FULL_LENGTHS, build, close, make_case, make_plan, small_hyper, tolerance, toy_federation

WHOLE = make_plan("map", drop_nonfinite=True)


@pytest.mark.slow
def test_target_and_queue_may_be_averaged() -> None:
    """As the official code averages them: by samples, like everything else."""
    federation = toy_federation(FULL_LENGTHS)
    kept, averaged = (
        make_case(build("fedmoco", federation, target=target), federation, WHOLE) for target in ("kept", "averaged")
    )
    own = kept.advance(1).clients.base.local
    assert set(own) == {"target", "queue"}
    share = np.asarray(FULL_LENGTHS, np.float64) / sum(FULL_LENGTHS)
    wanted = jax.tree.map(lambda leaf: np.tensordot(share, np.asarray(leaf, np.float64), 1), own)
    state = averaged.advance(1)
    close({name: state.server.variables[name] for name in own}, wanted, **tolerance("fedmoco"))
    assert not jax.tree.leaves(state.clients)
    sent = traffic(averaged.method, federation).sent
    assert set(label_table(sent, averaged.method.label).values()) == {"shared"}
    assert set(sent) >= {"target", "queue"}


@pytest.mark.slow
def test_with_the_official_head_keys_are_as_long_as_its_outputs() -> None:
    federation = toy_federation(FULL_LENGTHS)
    model = as_model(HEADS["moco"](DenseNet, 3, 1 / 128), IMAGE)
    method = METHODS["fedmoco"].build(Setup(model, 4, 3), small_hyper("fedmoco", queue=32))
    case = make_case(method, federation, WHOLE)
    state, info = case.round(case.start(), federation)
    assert state.clients.base.local["queue"]["keys"].shape == (4, 32, 16)
    assert np.isfinite(info.loss).all()
    assert not np.allclose(jnp.linalg.norm(state.clients.base.local["queue"]["keys"], axis=-1).min(), 0)


def test_an_unknown_target_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="expected one of") as error:
        build("fedmoco", toy_federation(), target="mean")
    assert "\n" not in str(error.value)
