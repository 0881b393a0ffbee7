"""A network cut after any of its stages is the network: the same variables, the same outputs."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Model, Output
from fdgjax.models import MODELS, StageRange
from fdgjax.models.client_model import as_model
from fdgjax.utils.variables import merge
from tests.marks import mostly_slow
from tests.shallow import sample, shallow

KEY = jax.random.key(3)


STAGED = [name for name, maker in MODELS.items() if maker.stages]
QUICK = ("inception", "resnet10", "efficientnet_lite0", "mlp", "conv1d")


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(STAGED, QUICK))
def test_every_cut_splits_variables_and_function(name: str) -> None:
    maker, x = shallow(name), jax.ShapeDtypeStruct((2, *sample(name)), jnp.float32)
    whole = as_model(maker(4, 1 / 32), x.shape[1:])
    expected = jax.eval_shape(whole.init, KEY)
    logits = output_of(whole, expected, x).logits
    for end in sorted({1, len(maker.stages) // 2, len(maker.stages)}):
        trunk = as_model(maker(4, 1 / 32, part=StageRange(0, end)), x.shape[1:])
        first = jax.eval_shape(trunk.init, KEY)
        features = output_of(trunk, first, x).logits
        rest = as_model(maker(4, 1 / 32, part=StageRange(end)), features.shape[1:])
        second = jax.eval_shape(rest.init, KEY)
        chex.assert_trees_all_equal_shapes_and_dtypes(merge(first, second), dict(expected))
        output = output_of(rest, second, features)
        assert output.logits.shape == logits.shape
        assert output.features.shape[1] > 0
    # The last cut leaves the last layer alone.
    assert set(second) == {"params"}
    assert set(second["params"]) in ({"head"}, {"linear_2"})


def output_of(model: Model, variables: Any, x: Any) -> Output:
    return jax.eval_shape(lambda variables, x: model.apply(variables, x, False, KEY)[0], variables, x)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_cnn", "resnet10", "mlp", "conv1d"])
def test_a_cut_network_starts_and_computes_as_the_whole(name: str) -> None:
    maker, x = MODELS[name], np.random.default_rng(0).uniform(-1, 1, (2, *sample(name))).astype(np.float32)
    end = len(maker.stages) // 2

    @jax.jit
    def both(x: jax.Array) -> Any:
        whole = as_model(maker(4, 1 / 32), x.shape[1:])
        trunk = as_model(maker(4, 1 / 32, part=StageRange(0, end)), x.shape[1:])
        first = trunk.init(KEY)
        features = trunk.apply(first, x, False, KEY)[0].logits
        rest = as_model(maker(4, 1 / 32, part=StageRange(end)), features.shape[1:])
        second, variables = rest.init(KEY), whole.init(KEY)
        outputs = whole.apply(variables, x, False, KEY)[0].logits, rest.apply(second, features, False, KEY)[0].logits
        return variables, merge(first, second), outputs

    variables, parts, (one, other) = both(x)
    chex.assert_trees_all_equal(variables, parts)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("names", [tuple(MODELS)], ids=["all"])  # without what tests register
def test_stages_are_counted_as_they_are_run(names: tuple[str, ...]) -> None:
    for name, maker in ((name, MODELS[name]) for name in names):
        assert len(set(maker.stages)) == len(maker.stages), name
        assert maker.stages or name == "linear"
        beyond = maker(4, 1 / 32, part=StageRange(len(maker.stages) + 1))
        kept = jax.eval_shape(beyond.init, KEY, jnp.zeros((1, *sample(name))))
        assert not jax.tree.leaves(kept), f"{name} runs more steps than its stages and a last layer"
