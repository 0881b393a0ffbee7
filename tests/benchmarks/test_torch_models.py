"""Our networks against PyTorch's own layers: the same outputs, gradients and statistics from the same variables.

PyTorch's numbers are stored (`tests.conformance`); test_torch_twins.py makes them again where PyTorch is installed.
"""

from functools import partial
from typing import Any

import jax
import numpy as np
import optax
import pytest

from tests.conformance import check
from tests.conformance.networks import NETWORKS, Given, float64, given, kept, torch_state
from tests.marks import mostly_slow

pytestmark = pytest.mark.slow


def ours(of: Given) -> dict[str, np.ndarray]:
    key = jax.random.key(0)

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def compute(variables: Any, images: jax.Array, labels: jax.Array) -> tuple:
        def loss(params: Any) -> tuple[jax.Array, tuple]:
            output, changed = of.model.apply({**variables, "params": params}, images, True, key)
            logits = output.logits
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), (logits, changed)

        gradients, (logits, changed) = jax.grad(loss, has_aux=True)(variables["params"])
        return of.model.apply(variables, images, False, key)[0].logits, logits, gradients, changed

    evaluated, trained, gradients, changed = jax.device_get(compute(of.variables, of.images, of.labels))
    means = {name: value for name, value in torch_state(changed).items() if name.endswith("running_mean")}
    return kept(evaluated, trained, torch_state({"params": gradients}), means)


@pytest.mark.parametrize("name", mostly_slow(NETWORKS, ("inception", "digits_cnn")))
def test_the_torch_twin_is_the_same_network(name: str) -> None:
    with float64():
        got = ours(given(name))
    check(name, got, rtol=1e-8, atol=1e-10)
    assert any(path.startswith("means/") for path in got) == (name not in ("inception", "digits_cnn", "mnist_cnn"))
