"""BatchNorm that keeps the statistics of pretrained weights while its network is trained."""

from functools import partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from fdgjax.contract import PyTree
from fdgjax.models.client_model import ClientModel, make_client_model, make_network
from fdgjax.models.pretrained.convert import WeightFile, read_weights
from fdgjax.nn import BatchStatistics
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten
from tests.conformance.weights import CLASSES, FILES, SIDE


def with_frozen_statistics(name: str, weights: WeightFile | None, units: str = "") -> ClientModel:
    network = partial(make_network, name, CLASSES, width=1 / 16, unit=units)
    kept = BatchStatistics(frozen=True)
    return make_client_model(
        network, name, (SIDE, SIDE, 3), frozen=0, scaling="signed", weights=weights, statistics=kept
    )


@pytest.mark.slow
def test_frozen_statistics_stay_a_files_while_all_parameters_are_trained(tmp_path: Path) -> None:
    name, file = "resnet18_imagenet", tmp_path / "weights.safetensors"
    save_file(FILES[name](), file)
    model = with_frozen_statistics(name, read_weights(str(file), name)).rest
    variables = jax.jit(model.init)(jax.random.key(1))
    x, key = jnp.linspace(-1, 1, 2 * SIDE * SIDE * 3).reshape(2, SIDE, SIDE, 3), jax.random.key(0)

    def loss(params: PyTree) -> Any:
        output, changed = model.apply({**variables, "params": params}, x, True, key)
        return jnp.sum(output.logits[:, 0]), (output.logits, changed)

    (_, (logits, changed)), slopes = jax.jit(jax.value_and_grad(loss, has_aux=True))(variables["params"])
    chex.assert_trees_all_equal(changed, {"batch_stats": variables["batch_stats"]})
    np.testing.assert_allclose(logits, jax.jit(model.evaluate)(variables, x).logits, rtol=1e-4, atol=1e-5)
    assert all(np.abs(of).max() > 0 for path, of in flatten(slopes).items() if not path.startswith("head"))


@pytest.mark.parametrize(
    ("name", "units", "said"),
    [("inception", "", "no BatchNorm"), ("digits_cnn", "norm", "layer conv_1/bn, whose statistics are in no file")],
)
def test_frozen_statistics_of_a_random_network_are_refused(name: str, units: str, said: str) -> None:
    with pytest.raises(UserError, match=f"frozen_statistics got True for the network '{name}' with .*{said}"):
        with_frozen_statistics(name, None, units)
