"""Which methods run on rows of a table, traced for a whole round: all but those that look at pixels."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from fdgjax.contract import Setup
from fdgjax.data.federation import Federation, pool
from fdgjax.engine import compile_round, init_state
from fdgjax.methods import METHODS
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.models.client_model import as_model
from fdgjax.utils.errors import UserError
from tests.marks import mostly_slow
from tests.toys import DOMAINS, lengths_for, make_plan, small_hyper, toy_federation

OF_IMAGES = {"ccst": "a style", "feddg": "an amplitude spectrum", "fedccrl": "a style"}
"""What they say; FedFA and gPerXAN need convolutional units and are refused by `Entry.needs`."""
BUILT = sorted(set(METHODS) - {"stablefdg"})
"""StableFDG needs a network with passages for styles, and is refused by its needs before it is built."""
QUICK = ("fedavg", "fedsimclr", "feddg", "fedccrl")
COLUMNS = 5


def round_on_a_table(name: str, **chosen: object) -> None:
    """Traces the first round of a method with `mlp` on a federation of rows."""
    entry, federation = METHODS[name], toy_federation(lengths_for(name))
    inputs = jax.ShapeDtypeStruct((len(federation.labels), COLUMNS), jnp.float32)

    def network(outputs: int) -> nn.Module:
        return MODELS["mlp"](outputs, 1 / 8, UNITS[entry.unit or "plain"])

    model = as_model(HEADS[entry.head or "linear"](network, 3, 1 / 128), (COLUMNS,))
    setup = Setup(model, len(federation.ids), 3, domains=DOMAINS)
    # The toys' own view is a flip, which only images have.
    chosen |= {"augmentation": "simclr"} if entry.unlabelled else {}
    method = entry.build(setup, small_hyper(name, **chosen))

    def first(inputs: jax.Array) -> object:
        rows: Federation = federation._replace(inputs=inputs)
        data = pool(rows) if method.pooled else rows
        return compile_round(method, make_plan())(init_state(method, data, 0), data)

    jax.eval_shape(first, inputs)


@pytest.mark.parametrize("name", mostly_slow(BUILT, QUICK))
def test_every_method_runs_on_a_table_unless_it_looks_at_pixels(name: str) -> None:
    if name in OF_IMAGES:
        with pytest.raises(UserError, match=f"{OF_IMAGES[name]}.* is made for images .* got samples of shape") as error:
            round_on_a_table(name)
        assert "\n" not in str(error.value)
    else:
        round_on_a_table(name)


def test_an_autoencoder_of_images_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"embeddings=fixed is made for images .* got samples of shape \[5\]"):
        round_on_a_table("hfedf", embeddings="fixed")
