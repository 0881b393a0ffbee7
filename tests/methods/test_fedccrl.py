"""FedCCRL's laws: what the bank holds and what travels, styles of others alone, the objective by its parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context
from fdgjax.data.augmentations.style import Style
from fdgjax.engine.traffic import traffic
from fdgjax.methods.fedccrl import restyled
from fdgjax.methods.parts.bank import Bank
from fdgjax.methods.parts.extend import Extended
from fdgjax.objectives import supervised_contrast
from fdgjax.utils.variables import bytes_of
from tests.toy_models import IMAGE, tiny_model
from tests.toys import CLIENTS, build, make_plan, shared_case, shared_method, toy_federation

WHOLE = make_plan(drop_nonfinite=True)
SHOWN = 16


def context_of(there: list[bool], place: int, means: np.ndarray) -> Context:
    """A client at a place of a bank whose clients have these means and no contrast."""
    shape = (len(there), SHOWN, 1)
    mean = np.broadcast_to(means.reshape(-1, 1, 1), shape).astype(np.float32)
    bank = Bank(Style(jnp.asarray(mean), jnp.full(shape, 1e-3)), jnp.asarray(there))
    return Context(Extended({}, bank), Extended({}, jnp.int32(place)), {}, jnp.int32(1))


@pytest.mark.slow
def test_images_take_the_styles_of_others_and_keep_their_own_where_there_are_none() -> None:
    images = jax.random.uniform(jax.random.key(0), (60, *IMAGE), minval=-0.5, maxval=0.5)
    context = context_of([True, True, False, True], 0, np.array([-0.9, 0.2, -0.9, 0.8]))
    means = np.asarray(restyled(jax.random.key(1), images, context, 0.1)).mean((1, 2, 3))
    own = np.asarray(images).mean((1, 2, 3))
    # Beta(0.1, 0.1) is nearly 0 or 1: the image keeps its style, or has that of one of the other two clients.
    kinds = [np.abs(means - target) < 0.02 for target in (own, 0.2, 0.8)]
    assert all(kind.sum() > 5 for kind in kinds)
    assert sum(kind.sum() for kind in kinds) > 40
    assert (means > -0.55).all()
    alone = restyled(jax.random.key(1), images, context_of([True, False, False, False], 0, np.zeros(4)), 0.1)
    np.testing.assert_allclose(alone, images, atol=1e-5)


@pytest.mark.slow
def test_the_bank_holds_the_styles_that_clients_showed_last() -> None:
    case, federation = shared_case("fedccrl", plan=WHOLE), toy_federation()
    bank = case.advance(2).server.more
    assert bank.there.all()
    for client in range(CLIENTS):
        rows = np.asarray(federation.train.places[client])[: int(federation.train.length[client])]
        chosen = np.asarray(federation.inputs)[rows[(SHOWN + np.arange(SHOWN)) % len(rows)]] / 127.5 - 1
        np.testing.assert_allclose(bank.shown.mean[client], chosen.mean((1, 2)), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(bank.shown.deviation[client], chosen.std((1, 2), ddof=1), rtol=1e-3)


@pytest.mark.slow
def test_the_objective_is_its_parts() -> None:
    """Without any other client and without augmentation all three views are the image: only the contrast is left of
    the agreement, and the cross-entropy counts three times."""
    model = tiny_model(method="fedccrl")
    variables = model.init(jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (4, *IMAGE), minval=-0.9, maxval=0.9)
    batch = Batch(images, jnp.int32([0, 1, 0, 2]), jnp.float32([1, 1, 1, 0]))
    key, output = jax.random.key(2), model.apply(variables, images, True, jax.random.key(2))[0]
    alone = context_of([True, False], 0, np.zeros(2))
    method = build("fedccrl", toy_federation(), contrast=0.3, divergence=0.7)
    loss, _ = method.objective(variables, batch, key, alone)
    contrast = supervised_contrast(output.features, output.features, batch.labels, batch.mask, temperature=0.5)
    entropy = np.log(np.exp(output.logits).sum(1)) - np.asarray(output.logits)[range(4), [0, 1, 0, 2]]
    np.testing.assert_allclose(loss, 3 * entropy[:3].mean() + 0.3 * contrast, rtol=1e-4)
    # With others the three predictions differ.
    other = context_of([True, True], 0, np.array([0.0, 0.5]))
    bare, one, two = (
        float(method.objective(variables, batch, key, other)[0])
        for method in (
            build("fedccrl", toy_federation(), contrast=0.0, divergence=weight) for weight in (0.0, 1.0, 2.0)
        )
    )
    assert one > bare
    np.testing.assert_allclose(two - one, one - bare, rtol=1e-3)


def test_styles_travel_in_both_directions() -> None:
    mine, fedavgs = (traffic(shared_method(name), toy_federation()) for name in ("fedccrl", "moon"))
    shown = 2 * 4 * SHOWN * IMAGE[2]
    assert bytes_of(mine.message) == bytes_of(fedavgs.message) + shown
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent) + CLIENTS * (shown + 1)
