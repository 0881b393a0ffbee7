"""FedFA's server: variances across clients of what their layers measured; without them it is FedAvg."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import ServerStep, Setup
from fdgjax.engine import State
from fdgjax.methods import METHODS
from fdgjax.methods.fedavg import ClientVariables, Message
from fdgjax.models.client_model import as_model
from fdgjax.models.units import AugmentedUnit
from fdgjax.utils.variables import flatten
from tests.toy_models import IMAGE, DenseNet
from tests.toys import CLIENTS, build, close, flat, make_case, small_hyper, toy_federation


def trained(name: str, probability: float, rounds: int) -> State:
    module = DenseNet(unit=partial(AugmentedUnit, probability=probability), pixels=(2, 2))
    setup = Setup(as_model(module, IMAGE), CLIENTS, 3)
    return make_case(METHODS[name].build(setup, small_hyper(name))).advance(rounds)


def split(state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """What FedAvg would have, and what the server makes."""
    leaves = flatten(state.server.variables)
    ours = {path: leaf for path, leaf in leaves.items() if path.endswith("_variance")}
    return {path: leaf for path, leaf in leaves.items() if path not in ours}, ours


@pytest.mark.slow
def test_without_augmentation_it_is_fedavg() -> None:
    (mine, made), (fedavg, untouched) = (split(trained(name, 0.0, 2)) for name in ("fedfa", "fedavg"))
    close(mine, fedavg)
    np.testing.assert_array_equal(flat(untouched), 1)
    # Nobody has measured anything, so that nobody differs.
    np.testing.assert_allclose(flat(made), 0, atol=1e-7)


@pytest.mark.slow
def test_what_the_server_measured_matters_from_the_second_round_on() -> None:
    first, second = ([split(trained(name, 1.0, rounds)) for name in ("fedfa", "fedavg")] for rounds in (1, 2))
    close(first[0][0], first[1][0])
    assert (flat(first[0][1]) > 0).all()
    assert not np.allclose(flat(second[0][0]), flat(second[1][0]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["channel", "layer"])
@pytest.mark.parametrize("dropped", [(), (1,)])
def test_variances_by_hand(kind: str, dropped: tuple[int, ...]) -> None:
    method, rng = build("fedfa", toy_federation(), variance=kind), np.random.default_rng(0)
    server, _ = method.init(jax.random.key(0), toy_federation())
    update = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=(CLIENTS, *leaf.shape)), jnp.float32), server.variables
    )
    weights = np.asarray([5.0, 8.0, 1.0, 9.0], np.float32)
    weights[list(dropped)] = 0
    clients = ClientVariables({}, {})
    step, _ = method.aggregate(server, clients, Message(update, {}), jnp.asarray(weights))
    after, _ = method.update(server, clients, step, ServerStep(jnp.int32(0), jax.random.key(0)))
    now, new, sent = flatten(server.variables), flatten(after.variables), flatten(update)
    seen, found = weights > 0, 0
    for path, leaf in new.items():
        if path.endswith("_variance"):
            source = path.removesuffix("_variance")
            values = (np.asarray(now[source], np.float64) + np.asarray(sent[source], np.float64))[seen]
            wanted = values.var(axis=0) if kind == "channel" else np.full(leaf.shape, values.var(ddof=1))
            found += 1
        else:
            wanted = now[path] + np.average(np.asarray(sent[path], np.float64), axis=0, weights=weights)
        np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5, err_msg=path)
    assert found == 2


def test_where_nobody_counts_everything_stays() -> None:
    method = build("fedfa", toy_federation())
    server, _ = method.init(jax.random.key(0), toy_federation())
    zeros = jax.tree.map(lambda leaf: jnp.zeros((CLIENTS, *leaf.shape)), server.variables)
    step, _ = method.aggregate(server, ClientVariables({}, {}), Message(zeros, {}), jnp.zeros(CLIENTS))
    np.testing.assert_array_equal(flat(step), 0)
