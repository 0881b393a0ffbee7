"""BatchNorm that keeps the statistics of pretrained weights while its network is trained."""

from functools import partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from fdgjax.contract import Batch, Context, PyTree
from fdgjax.models.client_model import as_model, make_client_model, make_network
from fdgjax.models.pretrained.convert import in_files, read_weights
from fdgjax.nn import BatchStatistics
from fdgjax.objectives import entropy
from fdgjax.utils.variables import flatten
from tests.conformance.weights import CLASSES, FILES, SIDE
from tests.models.frozen import Tiny
from tests.toy_models import IMAGE


@pytest.mark.slow
@pytest.mark.parametrize("head", ["", "projection"])
def test_a_files_statistics_stay_while_all_parameters_are_trained(head: str, tmp_path: Path) -> None:
    """Of a layer that is in no file, such as a head's, they follow the batches."""
    name, file = "resnet18_imagenet", tmp_path / "weights.safetensors"
    save_file(FILES[name](), file)
    network, weights = partial(make_network, name, CLASSES, width=1 / 16, head=head), read_weights(str(file), name)
    kept = BatchStatistics(frozen=in_files)
    made = make_client_model(
        network, name, (SIDE, SIDE, 3), frozen=0, scaling="signed", weights=weights, statistics=kept
    )
    model = made.rest
    variables = jax.jit(model.init)(jax.random.key(1))
    x, key = jnp.linspace(-1, 1, 2 * SIDE * SIDE * 3).reshape(2, SIDE, SIDE, 3), jax.random.key(0)

    def loss(params: PyTree) -> Any:
        output, changed = model.apply({**variables, "params": params}, x, True, key)
        return jnp.sum(output.logits[:, 0]), (output.features, changed)

    (_, (features, changed)), slopes = jax.jit(jax.value_and_grad(loss, has_aux=True))(variables["params"])
    np.testing.assert_allclose(features, jax.jit(model.evaluate)(variables, x).features, rtol=1e-4, atol=1e-5)
    assert all(np.abs(of).max() > 0 for path, of in flatten(slopes).items() if "bn" in path)
    before = flatten({"batch_stats": variables["batch_stats"]})
    moved = {path.split("/")[1] for path, now in flatten(changed).items() if not np.array_equal(now, before[path])}
    assert moved == ({"projector"} if head else set())


def test_tent_normalises_by_the_batch_whatever_training_did() -> None:
    frozen = BatchStatistics(frozen=lambda path: path in ("first/bn", "second/bn"))
    models = [as_model(Tiny(CLASSES), IMAGE, statistics=kept) for kept in (BatchStatistics(), frozen)]
    variables, key = models[0].init(jax.random.key(0)), jax.random.key(1)
    images = jnp.linspace(-1, 1, 4 * int(np.prod(IMAGE))).reshape(4, *IMAGE)
    batch, context = Batch(images, jnp.zeros(4, jnp.int32), jnp.ones(4)), Context((), (), variables, jnp.int32(1))
    plain, same = (entropy(model)(variables, batch, key, context) for model in models)
    chex.assert_trees_all_close(same, plain, rtol=1e-5)
    in_training, frozen_too = (model.apply(variables, images, True, key)[0].logits for model in models)
    assert not np.allclose(frozen_too, in_training)
