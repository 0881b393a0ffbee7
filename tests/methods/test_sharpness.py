"""Sharpness-aware local steps, of FedSAM, FedASAM, FedLESAM and any method: nothing without a radius, the official
code's gradients with one, and what is kept and sent."""

import inspect
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fdgjax.contract import Batch, Context, ObjectiveResult
from fdgjax.engine.traffic import traffic
from fdgjax.methods import METHODS
from fdgjax.methods.parts.extend import Extended
from fdgjax.methods.parts.sharpness import KINDS
from fdgjax.utils.variables import bytes_of
from tests.conformance import torch_numbers
from tests.marks import mostly_slow
from tests.toys import (
    build,
    close,
    copy,
    flat,
    lengths_for,
    make_case,
    make_plan,
    poison,
    row,
    shared_case,
    shared_method,
    toy_federation,
)

WHOLE = make_plan(drop_nonfinite=True)
NEW = ("fedsam", "fedasam", "fedlesam")


@pytest.mark.parametrize("name", NEW)
def test_without_a_radius_it_is_fedavg(name: str) -> None:
    """The very same objective, row and message."""
    bare = build(name, toy_federation(), sharpness=0.0)
    assert inspect.getclosurevars(bare.objective).nonlocals.keys() == {"model"}
    assert METHODS[name].make is METHODS["fedavg"].make


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sam", "asam_weights", "lesam_leaves"])
def test_gradients_are_the_official_codes(kind: str) -> None:
    stored = torch_numbers("sharpness")
    places = [f"{layer}_{leaf}" for layer in ("first", "last") for leaf in ("kernel", "bias")]
    params, back = ({place: jnp.asarray(stored[place + end], jnp.float32) for place in places} for end in ("", "_back"))

    def objective(variables: Any, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        p = variables["params"]
        hidden = jnp.tanh(batch.inputs @ p["first_kernel"] + p["first_bias"][None])
        logits = hidden @ p["last_kernel"] + p["last_bias"][None]
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels)), {}

    h = SimpleNamespace(sharpness=float(stored["rho"]), sharpness_eta=float(stored["eta"]))
    sharp = KINDS[kind](build("fedavg", toy_federation())._replace(objective=objective), h).objective
    received = {"params": jax.tree.map(jnp.subtract, params, back)}
    context = Context((), Extended((), params), received, jnp.int32(1))
    batch = Batch(jnp.asarray(stored["x"], jnp.float32), jnp.asarray(stored["y"], jnp.int32), jnp.ones(6))
    gradient = jax.grad(lambda p: sharp({"params": p}, batch, jax.random.key(0), context)[0])(params)
    for place in places:
        np.testing.assert_allclose(gradient[place], stored[f"{place}_{kind}"], rtol=2e-5, atol=1e-6, err_msg=place)


@pytest.mark.slow
def test_the_first_round_of_fedlesam_is_fedavgs_and_the_second_is_not() -> None:
    """Nothing has moved before the first; the row then has what was received, and nothing more travels."""
    fedavg, case = (shared_case(name, plan=WHOLE) for name in ("fedavg", "fedlesam"))
    start = case.start()
    received = flat(start.server.variables["params"])
    state = case.advance(1)
    close(state.server, fedavg.advance(1).server)
    kept = copy(row(state.clients, 1))
    np.testing.assert_array_equal(flat(kept), received)
    assert not np.allclose(flat(case.advance(2).server), flat(fedavg.advance(2).server), rtol=0, atol=1e-5)
    state, _ = case.round(case.advance(1), poison(case.federation, 1))
    np.testing.assert_array_equal(flat(row(state.clients, 1)), flat(kept))
    assert not np.array_equal(flat(row(state.clients, 0)), flat(kept))
    mine, fedavgs = (traffic(shared_method(name), toy_federation()) for name in ("fedlesam", "fedavg"))
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent)
    assert bytes_of(mine.message) == bytes_of(fedavgs.message)


@pytest.mark.slow
def test_batch_norms_running_statistics_are_those_of_the_kept_parameters() -> None:
    """After one step from the same variables they are FedAvg's, while the parameters differ."""
    federation, plan = toy_federation((4,) * 4), make_plan(epochs=1)
    plain, sharp = (
        make_case(build(name, federation, "norm"), federation, plan).advance(1) for name in ("fedavg", "fedsam")
    )
    close(sharp.server.variables["batch_stats"], plain.server.variables["batch_stats"])
    assert not np.allclose(flat(sharp.server.variables["params"]), flat(plain.server.variables["params"]), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    mostly_slow(
        [(name, kind) for name in sorted(set(METHODS) - set(NEW)) for kind in ("sam", "lesam")],
        [("scaffold", "sam"), ("hfedf", "lesam")],
    ),
)
def test_every_method_takes_sharpness_aware_steps(name: str, kind: str) -> None:
    """Two rounds are finite and other than without; LESAM's first round, before anything moved, is the method's."""
    federation = toy_federation(lengths_for(name))
    plain = shared_case(name, plan=WHOLE)
    sharp = make_case(build(name, federation, sharpness=0.05, sharpness_kind=kind), federation)
    once, twice = sharp.advance(1), sharp.advance(2)
    assert np.all(np.isfinite(flat((once.server, twice.server))))
    if kind == "lesam":
        close(once.server, plain.advance(1).server)
    mine, other = (twice.server, twice.clients.base if kind == "lesam" else twice.clients), plain.advance(2)
    assert not np.allclose(flat(mine), flat((other.server, other.clients)), rtol=0, atol=1e-6)
