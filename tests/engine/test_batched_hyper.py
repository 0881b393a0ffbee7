"""A hyperparameter that differs between the members of a family is a number in arithmetic and a fact to Python."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.engine.batched_hyper import BatchedHyper, TracedNumber, Undecided, over_methods, pick
from tests.toys import shared_method, toy_federation

VALUES = (0.5, 2.0, 0.25)


def operations(h: Any) -> list[jax.Array]:
    x = jnp.asarray([1.5, -2.0], jnp.bfloat16)
    return [
        *(h + x, x + h, h - x, x - h, h * x, x * h, h / x, x / h, h**2 * x, 2**h * x, -h * x),
        *(np.float32(2) * h, h * np.float32(2), jnp.sqrt(jnp.asarray(h, jnp.float32))),
    ]


@pytest.mark.slow
def test_arithmetic_is_that_of_a_python_float_and_changes_no_dtype() -> None:
    as_number = jax.jit(lambda v: operations(TracedNumber(pick(v, VALUES), VALUES)))
    for place, value in enumerate(VALUES):
        known = [jnp.asarray(one) for one in operations(value)]
        for ours, theirs in zip(as_number(jnp.int32(place)), known, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(np.asarray(ours, np.float32), np.asarray(theirs, np.float32), rtol=1e-2)


def test_python_decides_where_all_agree_and_nowhere_else() -> None:
    number = TracedNumber(jnp.float32(0.5), VALUES)
    assert number
    assert number > 0
    assert number != 1
    assert not number >= 3
    assert float(TracedNumber(jnp.float32(2), (2.0, 2.0))) == 2
    for question in (lambda: number > 1, lambda: number == 0.5, lambda: float(number)):
        with pytest.raises(Undecided, match="members of a family differ"):
            question()
    assert bool(number > jnp.float32(0.4)), "with an array it is an array's comparison"
    with pytest.raises(TypeError, match="unhashable"):
        hash(number)


def test_each_seed_has_the_method_of_its_own_number() -> None:
    federation = toy_federation()
    tables = {
        name: jax.tree.map(lambda leaf: jnp.stack([leaf] * len(VALUES)), getattr(federation, name))
        for name in ("train", "validation", "test", "target", "server")
    }
    method = shared_method("fedavg")
    varied = BatchedHyper({"factor": VALUES}, lambda numbers: method._replace(weights=lambda n: numbers["factor"] * n))
    weigh = over_methods(lambda method, x, federation: method.weights(x), varied, "map")
    np.testing.assert_allclose(jax.jit(weigh)(jnp.ones(3), federation._replace(**tables)), VALUES)
    same = over_methods(lambda method, x, federation: x, method, "map")
    np.testing.assert_allclose(same(jnp.ones(3), federation), np.ones(3))
