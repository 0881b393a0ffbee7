"""gPerXAN's laws: FedBN on the same network without guidance, the objective by hand, what stays with the clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context, Setup
from fdgjax.methods import METHODS
from fdgjax.methods.parts.extend import Extended
from fdgjax.utils.variables import flatten
from tests.toy_models import IMAGE, tiny_model
from tests.toys import CLIENTS, FULL_LENGTHS, build, close, make_case, small_hyper, toy_federation

MODEL = tiny_model(method="gperxan")


@pytest.mark.slow
def test_without_guidance_it_is_fedbn_on_the_same_network() -> None:
    federation = toy_federation(FULL_LENGTHS)
    fedbn = METHODS["fedbn"].build(Setup(MODEL, CLIENTS, 3), small_hyper("fedbn"))
    bare = build("gperxan", federation, guidance=0.0)
    mine, other = (make_case(method, federation).advance(2) for method in (bare, fedbn))
    close((mine.server, mine.clients.base), (other.server, other.clients.base))


@pytest.mark.slow
def test_the_objective_by_hand() -> None:
    method = build("gperxan", toy_federation(), guidance=0.3)
    received = MODEL.init(jax.random.key(0))
    variables = {**received, "params": jax.tree.map(lambda leaf: leaf + 0.1, received["params"])}
    images = jax.random.uniform(jax.random.key(1), (3, *IMAGE), minval=-1)
    batch = Batch(images, jnp.int32([2, 0, 1]), jnp.float32([1, 1, 0]), jnp.float32([0.5, 1, 1]))
    context = Context((), Extended((), ()), received, jnp.int32(0))

    def loss(params: dict) -> jax.Array:
        return method.objective({**variables, "params": params}, batch, jax.random.key(0), context)[0]

    value, gradient = jax.value_and_grad(loss)(variables["params"])
    output, _ = MODEL.apply(variables, images, True, jax.random.key(0))
    features, last = np.asarray(output.features, np.float64), received["params"]["linear_2"]
    guide = features @ np.asarray(last["kernel"], np.float64) + np.asarray(last["bias"], np.float64)
    rows, labels, share = range(3), [2, 0, 1], np.array([0.5, 1, 0]) / 1.5

    def entropy(logits: np.ndarray) -> float:
        return float(share @ (np.log(np.exp(logits).sum(1)) - logits[rows, labels]))

    own = np.asarray(output.logits, np.float64)
    np.testing.assert_allclose(value, entropy(own) + 0.3 * entropy(guide), rtol=1e-5)
    # The received layer is fixed: the client's own learns from its own term alone.
    own_part = np.exp(own) / np.exp(own).sum(1, keepdims=True) - np.eye(3)[labels]
    np.testing.assert_allclose(gradient["linear_2"]["bias"], share @ own_part, rtol=1e-4, atol=1e-6)


def test_batchnorm_stays_and_in_the_official_code_its_score_as_well() -> None:
    paths = list(flatten(jax.eval_shape(MODEL.init, jax.random.key(0))))
    for scores, kept in (("shared", 0), ("official", 1)):
        label = build("gperxan", toy_federation(), scores=scores).label
        local = [path for path in paths if label(path) == "local"]
        assert sum("/bn/" in path for path in local) == 4
        assert [path for path in local if "/bn/" not in path] == ["params/linear_1/norm/score_bn"] * kept
