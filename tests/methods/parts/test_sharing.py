"""Clients that have not trained yet: no part of the model for an unseen domain, and their first target."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import PyTree
from tests.toys import FULL_LENGTHS, build, close, flat, make_case, make_plan, row, toy_federation

MODELS = {"gperxan": "dense", "fdse": "dense", "fedbn": "norm", "ssfl": "norm", "fedbyol": "dense"}
FEW = make_plan("map", per_round=2)


def spread_out(kept: PyTree, seed: int) -> PyTree:
    """What clients keep, each with other values."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.uniform(0.5, 1.5, leaf.shape), jnp.float32), kept)


@pytest.mark.parametrize(
    ("name", "shares"), [("gperxan", FULL_LENGTHS), ("fedbn", (1,) * 4), ("fdse", (1,) * 4), ("ssfl", (1,) * 4)]
)
@pytest.mark.parametrize("trained", [(True,) * 4, (False, True, False, True), (False,) * 4])
def test_the_mean_is_of_those_that_have_trained(name: str, shares: tuple[int, ...], trained: tuple[bool, ...]) -> None:
    """gPerXAN's by samples, as in its official code; before the first round of all."""
    federation = toy_federation(FULL_LENGTHS)
    method = build(name, federation, MODELS[name], unseen="mean")
    server, clients = jax.jit(method.init)(jax.random.key(0), federation)
    own = spread_out(clients.base, 1)
    clients = clients._replace(base=own, more=clients.more._replace(trained=jnp.asarray(trained)))
    found = flat(row(jax.jit(method.unseen)(server, clients), 0))
    weight = np.asarray(shares) * (np.asarray(trained) if any(trained) else 1)
    mean = jax.tree.map(lambda leaf: np.tensordot(weight / weight.sum(), np.asarray(leaf), 1), own)
    wanted = method.predict(server, row(clients, 0)._replace(base=mean))
    np.testing.assert_allclose(found, flat(wanted), rtol=1e-5, atol=1e-6)


def test_the_model_of_each_client_needs_no_such_row() -> None:
    federation = toy_federation(FULL_LENGTHS)
    _, clients = jax.eval_shape(build("fedbn", federation, "norm", unseen="each").init, jax.random.key(0), federation)
    assert not hasattr(clients, "more")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedbn", "fedbyol"])
def test_a_round_marks_its_clients(name: str) -> None:
    federation = toy_federation(FULL_LENGTHS)
    case = make_case(build(name, federation, MODELS[name]), federation, FEW)
    state, info = case.round(case.start(), federation)
    more = state.clients.more
    marked = np.flatnonzero(more.trained if name == "fedbn" else more)
    np.testing.assert_array_equal(marked, np.sort(info.participants))
    assert len(marked) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedbyol", "fedmoco", "fedema"])
def test_the_first_target_is_the_model_that_is_sent(name: str) -> None:
    """A client that takes part late does not begin with the target of an untrained network; later it keeps its own."""
    federation = toy_federation(FULL_LENGTHS)
    method = build(name, federation)
    server, clients = jax.jit(method.init)(jax.random.key(0), federation)
    server = server._replace(variables=spread_out(server.variables, 2))
    first = row(clients, 1)
    sent = method.send(server, first)
    begun = method.start(sent, first)
    close(begun["target"], {kind: begun[kind] for kind in begun["target"]})
    inner = first.base if name == "fedema" else first
    later = inner._replace(more=jnp.asarray(True))
    kept = method.start(sent, first._replace(base=later) if name == "fedema" else later)
    close(kept["target"], inner.base.local["target"])
    assert not np.allclose(flat(kept["target"]["params"]), flat(begun["target"]["params"]))
