"""What is compiled for a single use is compiled quickly, and computes the same bits."""

from collections.abc import Iterator

import chex
import jax
import numpy as np
import pytest

from fdgjax.config import make_config, read_config
from fdgjax.experiments import build
from fdgjax.run.compilation import first_state, quick_to_compile


def test_draws_are_compiled_quickly_and_sums_as_ever() -> None:
    key, x = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((2, 2), np.float32)
    if jax.default_backend() == "cpu":
        assert quick_to_compile(jax.jit(lambda k: jax.random.normal(k, (3,))).lower(key))
    for sums in (lambda x: x @ x, lambda x: x.sum(axis=0), lambda x: jax.lax.cumsum(x), lambda x: x.max()):
        assert not quick_to_compile(jax.jit(sums).lower(x))


@pytest.fixture
def optimised() -> Iterator[None]:
    """Programs compiled as outside of the tests."""
    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.config.update(name, False)
    yield
    jax.config.update(name, before)


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    ("method", "model"), [("hfedf", "digits_cnn"), ("fdse", "digits_cnn"), ("fedbyol", "mnist_cnn")]
)
def test_the_quick_program_draws_the_same_bits(method: str, model: str) -> None:
    config = make_config(method, "rotated_digits")
    config.model.name = model
    config.model.width = 0.25
    experiment = build(read_config(config))
    chex.assert_trees_all_equal(first_state(experiment), experiment.init())
