"""FedHEAL against its official algorithm in plain NumPy loops, and as a special case of FedAvg."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import ServerStep
from fdgjax.engine.traffic import traffic
from fdgjax.methods.fedavg import Message
from fdgjax.utils.variables import bytes_of
from tests.toys import (
    build,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    poison,
    row,
    shared_case,
    shared_method,
    toy_federation,
)

WHOLE = make_plan(drop_nonfinite=True)


class Plain:
    """The official code's loops: a dict per client, one number at a time."""

    def __init__(self, clients: int, tau: float, beta: float) -> None:
        self.tau, self.beta = tau, beta
        self.signs: list[list[list[np.ndarray]]] = [[] for _ in range(clients)]
        self.growth, self.delta = [0.0] * clients, [0.0] * clients

    def round(self, updates: dict[int, list[np.ndarray]]) -> list[np.ndarray]:
        masks: dict[int, list[np.ndarray]] = {}
        distance: dict[int, float] = {}
        for i, tensors in updates.items():
            masks[i] = []
            for place, u in enumerate(tensors):
                mask = np.ones_like(u)
                for at in np.ndindex(u.shape) if self.signs[i] else ():
                    agreed = [former[place][at] == (u[at] >= 0) for former in self.signs[i]]
                    mask[at] = np.mean(agreed) > self.tau
                masks[i].append(mask)
            self.signs[i].append([u >= 0 for u in tensors])
            distance[i] = sum(np.sqrt(np.sum((u * m) ** 2)) for u, m in zip(tensors, masks[i], strict=True))
        for i in updates:
            self.delta[i] = (1 - self.beta) * self.delta[i] + self.beta * distance[i] / sum(distance.values())
            self.growth[i] += self.delta[i]
        step = []
        for place in range(len(next(iter(updates.values())))):
            counted = {i: (1 / len(updates) + self.growth[i]) * masks[i][place] for i in updates}
            total = sum(counted.values())
            moved = sum(counted[i] * updates[i][place] for i in updates)
            step.append(np.divide(moved, total, out=np.zeros_like(moved), where=total > 0))
        return step


@pytest.mark.slow
def test_masks_and_weights_are_those_of_plain_loops() -> None:
    """Five rounds of random updates with a trend; in two of them clients are left out."""
    federation, rng, tau, beta = toy_federation(), np.random.default_rng(0), 0.4, 0.4
    method = build("fedheal", federation, tau=tau, beta=beta)
    server, clients = method.init(jax.random.key(0), federation)
    plain, many = Plain(len(federation.ids), tau, beta), len(federation.ids)
    aggregate = jax.jit(method.aggregate)
    for absent in ([], [1], [], [0, 2], []):
        scale = 10.0 ** rng.integers(-1, 2, many)
        updates = jax.tree.map(
            lambda leaf, scale=scale: jnp.asarray(
                np.stack([s * rng.normal(0.5, 1, leaf.shape) for s in scale]), jnp.float32
            ),
            server.variables,
        )
        there = jnp.asarray([client not in absent for client in range(many)], jnp.float32)
        wanted = plain.round(
            {
                i: [np.asarray(leaf[i], np.float64) for leaf in jax.tree.leaves(updates)]
                for i in range(many)
                if i not in absent
            }
        )
        before = copy(clients)
        step, info = aggregate(server, clients, Message(updates, {}), there)
        after, clients = method.update(server, clients, step, ServerStep(jnp.int32(0), jax.random.key(0)))
        moved = flat(after.variables) - flat(server.variables)
        np.testing.assert_allclose(moved, np.concatenate([leaf.ravel() for leaf in wanted]), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(clients.more.growth, plain.growth, rtol=1e-5)
        shown = (1 / there.sum() + np.asarray(plain.growth)) * np.asarray(there)
        np.testing.assert_allclose(info["weights"], shown / shown.sum(), rtol=1e-5)
        for client in absent:
            jax.tree.map(np.testing.assert_array_equal, row(clients, client), row(before, client))
        server = after
    assert clients.more.rounds.tolist() == [4, 4, 4, 5]


@pytest.mark.slow
def test_where_every_update_counts_and_weights_stay_it_is_fedavg() -> None:
    fedavg = make_case(build("fedavg", toy_federation(), weighting="uniform"))
    case = make_case(build("fedheal", toy_federation(), tau=-1.0, beta=0.0))
    close(case.advance(3).server, fedavg.advance(3).server)


@pytest.mark.slow
def test_the_first_round_is_a_mean_weighted_by_distance() -> None:
    """Nothing is known of anybody's directions yet."""
    case, locally = (shared_case(name, plan=WHOLE) for name in ("fedheal", "local"))
    state = case.advance(1)
    start, models = case.start().server.variables, locally.advance(1).clients.local
    moves = jax.tree.map(lambda leaf, w: np.asarray(leaf, np.float64) - np.asarray(w), models, start)
    norms = sum(np.sqrt((leaf.reshape(len(leaf), -1) ** 2).sum(axis=1)) for leaf in jax.tree.leaves(moves))
    shares = (0.25 + 0.4 * norms / norms.sum()) / 1.4
    close(state.server.variables, jax.tree.map(lambda w, u: np.asarray(w) + np.tensordot(shares, u, 1), start, moves))


@pytest.mark.slow
def test_a_client_left_out_keeps_its_history_and_counts_nothing() -> None:
    case = shared_case("fedheal", plan=WHOLE)
    state = case.advance(1)
    before = copy(row(state.clients, 1))
    state, info = case.round(state, poison(case.federation, 1))
    jax.tree.map(np.testing.assert_array_equal, row(state.clients, 1), before)
    assert info.coefficients["weights"][1] == 0
    assert np.isfinite(flat(state.server)).all()


def test_histories_do_not_travel() -> None:
    mine, fedavgs = (traffic(shared_method(name), toy_federation()) for name in ("fedheal", "fedavg"))
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent)
    assert bytes_of(mine.message) == bytes_of(fedavgs.message)
