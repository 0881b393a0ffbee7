"""FedGaLA: what it reduces to, what it sends, and that every choice matters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Context, Setup
from fdgjax.engine.traffic import traffic
from fdgjax.methods import METHODS
from fdgjax.methods.fedavg import Message
from fdgjax.methods.fedgala import reference_of
from fdgjax.methods.fedsimclr import of_predictor
from fdgjax.methods.parts.extend import Extended
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of, flatten
from tests.aggregation.test_global_alignment import official_shares
from tests.toy_models import tiny_model
from tests.toys import (
    Case,
    build,
    close,
    flat,
    lengths_for,
    make_case,
    make_plan,
    row,
    shared_case,
    small_hyper,
    tolerance,
    toy_federation,
)

WHOLE = make_plan("map", drop_nonfinite=True)


def case_of(**chosen: object) -> Case:
    federation = toy_federation(lengths_for("fedgala"))
    return make_case(build("fedgala", federation, **chosen), federation, WHOLE)


@pytest.mark.slow
def test_without_both_alignments_it_is_fedsimclr() -> None:
    bare = case_of(local=False, globally=False, weighting="samples").advance(3)
    wanted = shared_case("fedsimclr", plan=WHOLE).advance(3)
    close(bare.server.base, wanted.server, **tolerance("fedgala"))
    close(bare.optimizers, wanted.optimizers, **tolerance("fedgala"))


def with_predictor(name: str, **chosen: object) -> Case:
    """A method without labels on a network that has a predictor."""
    federation = toy_federation(lengths_for(name))
    setup = Setup(tiny_model("dense", "fedbyol"), len(federation.ids), rounds=3)
    return make_case(METHODS[name].build(setup, small_hyper(name, **chosen)), federation, WHOLE)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["byol", "simsiam"])
def test_of_byol_and_simsiam_it_is_fedbyol_and_fedsimsiam_where_nothing_is_aligned(part: str) -> None:
    """Their predictors stay at the clients, so that the server has no step of theirs; what is dropped is counted."""
    bare = with_predictor("fedgala", part=part, first_round=9, globally=False, weighting="samples", dropped="zero")
    wanted = with_predictor(f"fed{part}")
    state, other = bare.advance(3), wanted.advance(3)
    close(state.server.base, other.server, **tolerance("fedgala"))
    close(state.clients, other.clients, **tolerance("fedgala"))


@pytest.mark.slow
def test_a_predictors_gradients_are_never_dropped() -> None:
    case = with_predictor("fedgala", part="byol", threshold=1.0)
    state = case.advance(1)
    client = row(state.clients, 0)
    sent = case.method.send(state.server, client)
    reference = flatten(reference_of(Context(sent, client, case.method.start(sent, client), state.round)))
    kept = {path for path in reference if of_predictor(path)}
    assert kept
    assert all(not np.any(reference[path]) for path in kept)
    close({path: leaf for path, leaf in reference.items() if path not in kept}, flatten(sent.more))
    state, info = case.round(state, case.federation)
    assert np.all(np.asarray(info.coefficients["discarded"]) > 0.2)
    assert not np.array_equal(flat(row(state.clients, 0).base.local["params"]), flat(client.base.local["params"]))


@pytest.mark.slow
def test_nothing_is_dropped_before_the_global_model_has_moved_and_signs_are_opposite() -> None:
    rates = {}
    for sign in ("descent", "as_published"):
        case = case_of(sign=sign)
        state, infos = case.start(), []
        for _ in range(2):
            state, info = case.round(state, case.federation)
            infos.append(np.asarray(info.coefficients["discarded"]))
        rates[sign] = infos
    np.testing.assert_array_equal(rates["descent"][0], 0)
    np.testing.assert_array_equal(rates["as_published"][0], 0)
    assert (rates["descent"][1] > 0).any()
    # The first step of a client meets the same gradients under both signs.
    assert not np.allclose(rates["descent"][1], rates["as_published"][1])


@pytest.mark.slow
def test_the_last_step_is_kept_and_sent_beside_the_model() -> None:
    case = shared_case("fedgala", plan=WHOLE)
    one = case.advance(1)
    start = case.start()
    moved = jax.tree.map(lambda a, b: a - b, one.server.base.variables["params"], start.server.base.variables["params"])
    close(one.server.more, moved)
    sent = traffic(case.method, case.federation).sent
    assert bytes_of(sent.more) == bytes_of(sent.base["params"])
    plain = build("fedgala", toy_federation(), local=False)
    assert not jax.tree.leaves(traffic(plain, case.federation).sent.more)


@pytest.mark.slow
def test_random_directions_drop_half_of_the_gradients_of_every_client() -> None:
    """Half in expectation; a client of this case has 2 to 4 steps with a dozen arrays each."""
    case = case_of(reference="random")
    state, rates = case.start(), []
    for _ in range(6):
        state, info = case.round(state, case.federation)
        rates.append(np.asarray(info.coefficients["discarded"]))
    np.testing.assert_array_equal(rates[0], 0)
    assert 0.3 < np.mean(rates[1:]) < 0.7
    assert not np.allclose(rates[1], rates[2])


@pytest.mark.slow
def test_sample_shares_matter_to_the_direction_alone() -> None:
    """Clients that left the round have no share; the weights start from uniform ones."""
    method = build("fedgala", toy_federation(), compared="shares", gamma=0.25)
    server, clients = jax.jit(method.init)(jax.random.key(0), toy_federation())
    sizes = method.weights(toy_federation().train.length) * jnp.asarray([1.0, 1, 0, 1])
    rng = np.random.default_rng(0)
    update = jax.tree.map(lambda leaf: rng.normal(size=(4, *leaf.shape)), server.base.variables)
    messages = Extended(Message(update, {}), jnp.zeros(4))
    _, info = method.aggregate(server, clients, messages, sizes)
    leaves = zip(jax.tree.leaves(info["weights"]), jax.tree.leaves(update), strict=True)
    kept = np.asarray([0, 1, 3])
    for weights, leaf in leaves:
        wanted = official_shares(leaf.reshape(4, -1)[kept], np.asarray(sizes, np.float64)[kept], 3, 0.25)
        np.testing.assert_allclose(weights[kept], wanted, atol=1e-5)
        assert weights[2] == 0


@pytest.mark.parametrize("wrong", ["dropped", "compared", "reference"])
def test_an_unknown_word_is_refused_in_one_line(wrong: str) -> None:
    with pytest.raises(UserError, match="expected one of") as error:
        build("fedgala", toy_federation(), **{wrong: "nothing"})
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"local": False},
        {"globally": False},
        {"sign": "as_published"},
        {"threshold": 0.2},
        {"iterations": 1},
        {"gamma": 0.5},
        {"scope": "tree"},
        {"compared": "shares"},
        {"reference": "random"},
        {"dropped": "zero"},
        {"first_round": 2},
        {"l2": 0.1},
        {"proximal": 0.5},
        {"augmentation": "crop"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_choice_matters(changed: dict[str, object]) -> None:
    other = case_of(**changed).advance(2)
    wanted = shared_case("fedgala", plan=WHOLE).advance(2)
    assert not np.allclose(flat(other.server.base), flat(wanted.server.base), rtol=0, atol=1e-7)


def test_an_unknown_sign_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="as_published") as error:
        build("fedgala", toy_federation(), sign="published")
    assert "\n" not in str(error.value)
