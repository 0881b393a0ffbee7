"""FedDG's laws: FedAvg without the second loss, what the bank holds, and what travels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context
from fdgjax.data.augmentations.amplitude import low_amplitudes
from fdgjax.engine.traffic import traffic
from fdgjax.methods.feddg import mixed_with_others
from fdgjax.methods.parts.bank import Bank
from fdgjax.methods.parts.extend import Extended
from fdgjax.methods.parts.sharing import ClientVariables
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of
from tests.toy_models import IMAGE
from tests.toys import (
    CLIENTS,
    build,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    poison,
    reorder,
    shared_case,
    shared_method,
    small_hyper,
    toy_federation,
)

WHOLE = make_plan(drop_nonfinite=True)
SHOWN = 16


@pytest.mark.slow
def test_without_the_second_loss_it_is_fedavg() -> None:
    bare, fedavg = make_case(build("feddg", toy_federation(), gamma=0.0)), shared_case("fedavg", plan=WHOLE)
    close(bare.advance(2).server.base, fedavg.advance(2).server)
    mixed = shared_case("feddg", plan=WHOLE).advance(1).server.base
    assert not np.allclose(flat(mixed), flat(fedavg.advance(1).server), rtol=0, atol=1e-5)


def shown(client: int, round_: int) -> jax.Array:
    """The amplitudes a client shows in a round: of the next images of its row, beginning again at its end."""
    federation = toy_federation()
    rows = np.asarray(federation.train.places[client])[: int(federation.train.length[client])]
    chosen = rows[(round_ * SHOWN + np.arange(SHOWN)) % len(rows)]
    return low_amplitudes(jnp.asarray(np.asarray(federation.inputs)[chosen] / 127.5 - 1, jnp.float32), 0.01)


@pytest.mark.slow
def test_the_bank_holds_the_amplitudes_that_clients_showed_last() -> None:
    case = shared_case("feddg", plan=WHOLE)
    state = case.start()
    assert not state.server.more.there.any()
    for round_ in range(2):
        state, _ = case.round(state, case.federation)
        wanted = jnp.stack([shown(client, round_) for client in range(CLIENTS)])
        np.testing.assert_allclose(state.server.more.shown, wanted, rtol=1e-5)
        assert state.server.more.there.all()
    before = copy(state.server.more.shown)
    state, _ = case.round(state, poison(case.federation, 1))
    np.testing.assert_array_equal(state.server.more.shown[1], before[1])
    assert state.server.more.there.all()
    assert not np.array_equal(state.server.more.shown[0], before[0])


@pytest.mark.slow
def test_a_client_that_never_counted_is_not_in_the_bank() -> None:
    case = shared_case("feddg", plan=WHOLE)
    state, _ = case.round(case.start(), poison(case.federation, 2))
    np.testing.assert_array_equal(state.server.more.there, [True, True, False, True])


def test_places_go_by_the_names_of_clients() -> None:
    order = [2, 0, 3, 1]
    _, clients = shared_method("feddg").init(jax.random.key(0), reorder(toy_federation(), order))
    np.testing.assert_array_equal(clients.more, order)


def mix(there: list[bool], place: int) -> np.ndarray:
    """200 equal images of half brightness, mixed in full with clients whose brightness is 0.1, 0.2, ..."""
    amplitudes = jnp.broadcast_to(jnp.arange(1, 5).reshape(4, 1, 1, 1, 1) / 10, (4, SHOWN, 1, 1, 1))
    batch = Batch(jnp.zeros((200, *IMAGE)), jnp.zeros(200, jnp.int32), jnp.ones(200))
    sent = Extended({}, Bank(amplitudes, jnp.asarray(there)))
    context = Context(sent, Extended(ClientVariables({}, {}), jnp.int32(place)), {}, jnp.int32(1))
    images = mixed_with_others(small_hyper("feddg", mixture="full"))(batch, jax.random.key(0), context)
    return np.round((np.asarray(images)[:, 0, 0, 0] + 1) / 2, 4)


@pytest.mark.slow
def test_images_are_mixed_with_any_other_client_in_the_bank() -> None:
    values, counts = np.unique(mix([True] * 4, 1), return_counts=True)
    np.testing.assert_allclose(values, [0.1, 0.3, 0.4], atol=1e-4)
    assert counts.min() > 40
    np.testing.assert_allclose(np.unique(mix([True, True, False, False], 0)), [0.2], atol=1e-4)
    np.testing.assert_allclose(mix([True, False, False, False], 0), 0.5, atol=1e-4)
    np.testing.assert_allclose(mix([False] * 4, 0), 0.5, atol=1e-4)


def test_amplitudes_travel_in_both_directions() -> None:
    mine, fedavgs = (traffic(shared_method(name), toy_federation()) for name in ("feddg", "fedavg"))
    shown_bytes = 4 * SHOWN * IMAGE[-1]
    assert bytes_of(mine.message) == bytes_of(fedavgs.message) + shown_bytes
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent) + CLIENTS * shown_bytes + CLIENTS


@pytest.mark.parametrize("wrong", [{"share": 0.5}, {"share": -0.1}, {"images": 0}])
def test_what_no_image_has_is_refused_in_one_line(wrong: dict) -> None:
    with pytest.raises(UserError, match="and images > 0") as error:
        build("feddg", toy_federation(), **wrong)
    assert "\n" not in str(error.value)
