"""FedSR's laws: FedAvg on the same network without its terms, the objective by hand, references that may stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context, Setup
from fdgjax.methods import METHODS
from fdgjax.methods.fedsr import OWN
from fdgjax.methods.parts.evaluated_models import as_trained
from fdgjax.utils.variables import flatten
from tests.toy_models import IMAGE, tiny_model
from tests.toys import CLIENTS, build, close, flat, make_case, make_plan, row, shared_case, small_hyper
from tests.toys import toy_federation as federation

pytestmark = pytest.mark.slow

WHOLE = make_plan(drop_nonfinite=True)
MODEL = tiny_model(method="fedsr")


def test_without_its_terms_it_is_fedavg_on_the_same_network() -> None:
    fedavg = METHODS["fedavg"].build(Setup(MODEL, CLIENTS, 3), small_hyper("fedavg"))
    bare = build("fedsr", federation(), l2r=0.0, cmi=0.0)
    close(make_case(bare).advance(2).server, make_case(fedavg).advance(2).server)


@pytest.mark.parametrize("length", ["squared", "plain"])
def test_the_objective_by_hand(length: str) -> None:
    method = build("fedsr", federation(), l2r=0.3, cmi=0.2, length=length)
    variables = jax.tree.map(lambda leaf: leaf + 0.1, MODEL.init(jax.random.key(0)))
    labels, mask, trust = np.array([2, 0, 1]), np.array([1.0, 1.0, 0.0]), np.array([0.5, 1.0, 1.0])
    images = jax.random.uniform(jax.random.key(1), (3, *IMAGE), minval=-1)
    batch = Batch(images, jnp.int32(labels), jnp.float32(mask), jnp.float32(trust))
    key = jax.random.key(2)
    loss, _ = method.objective(variables, batch, key, Context((), (), variables, jnp.int32(0)))
    output, _ = MODEL.apply(variables, images, True, key)
    logits, z, mean, deviation = (
        np.asarray(a, np.float64)
        for a in (output.logits, output.features, output.extra["mean"], output.extra["deviation"])
    )
    references = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables["params"]["gaussian"])
    r_mean, r_deviation = (
        references["reference_mean"][labels],
        np.log1p(np.exp(references["reference_deviation"]))[labels],
    )
    mean, deviation = references["scale"] * mean, references["scale"] * deviation
    entropy = np.log(np.exp(logits).sum(1)) - logits[range(3), labels]
    squared = (z**2).sum(1)
    divergence = np.log(r_deviation / deviation) + (deviation**2 + (mean - r_mean) ** 2) / (2 * r_deviation**2) - 0.5
    short = np.mean((squared if length == "squared" else np.sqrt(squared))[:2])
    counted = mask * trust
    wanted = (counted @ (entropy + 0.2 * divergence.sum(1))) / counted.sum() + 0.3 * short
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)


def test_every_parameter_learns() -> None:
    case = shared_case("fedsr", plan=WHOLE)
    before = jax.tree.map(np.asarray, flatten(case.start().server.variables))
    after = flatten(case.advance(1).server.variables)
    assert all(np.any(before[path] != after[path]) for path in after)


def test_references_can_stay_with_the_clients() -> None:
    case = make_case(build("fedsr", federation(), references="local"))
    state = case.advance(1)
    kept = flatten(state.clients.local)
    assert set(kept) == set(OWN)
    assert all(len(np.unique(flat(leaf)[:: leaf[0].size])) > 1 for leaf in kept.values())
    assert not set(OWN) & set(flatten(state.server.variables))


def test_references_that_stay_leave_one_model_that_predicts() -> None:
    case = make_case(as_trained(build("fedsr", federation(), references="local")))
    state, shared = case.advance(1), set(flatten(case.method.init(jax.random.key(0), federation())[0].variables))
    models = flatten(case.method.unseen(state.server, state.clients))
    assert {len(leaf) for leaf in models.values()} == {1}
    for client in case.everyone:
        model = flatten(case.method.predict(state.server, row(state.clients, client)))
        for path in shared:
            np.testing.assert_array_equal(model[path], models[path][0])
