"""A convex federation whose optimum is known by its gradient: softmax regression with weight decay, full batches."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Batch, Context, Setup
from fdgjax.engine import Execution, RoundPlan
from fdgjax.engine.local import Batching
from fdgjax.methods import METHODS
from fdgjax.models.client_model import as_model
from fdgjax.objectives import cross_entropy
from tests.toy_models import CLASSES, IMAGE
from tests.toys import flat, make_case, toy_federation

PLAIN_SGD = {"client_optimizer": "sgd", "client_learning_rate": 0.05, "client_momentum": 0.0, "client_clip": 0.0}
DECAY = 0.1
ROUNDS = 400


class Softmax(nn.Module):
    """One linear layer."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = x.reshape(len(x), -1)
        self.sow("intermediates", "features", x)
        return nn.Dense(CLASSES)(x)


def gradient_at_rest(name: str, **chosen: Any) -> float:
    """The length of the global objective's gradient where a method comes to rest, with several local steps a round.

    The objective is `sum_i p_i CE_i(w) + DECAY/2 |w|^2`; p_i uniform unless `weighting` is chosen.
    """
    federation, model = toy_federation(), as_model(Softmax(), IMAGE)
    chosen = {"weighting": "uniform"} | chosen
    h = METHODS[name].hyper(**PLAIN_SGD, client_weight_decay=DECAY, **chosen)
    method = METHODS[name].build(Setup(model, len(federation.ids), ROUNDS), h)
    longest = federation.train.places.shape[1]
    case = make_case(method, plan=RoundPlan(Batching(5, longest, False), 0, Execution("map")))
    state = case.advance(ROUNDS)
    variables = jax.tree.map(lambda leaf: leaf[0], method.unseen(state.server, state.clients))
    lengths = np.asarray(federation.train.length)
    shares = lengths / lengths.sum() if chosen["weighting"] == "samples" else np.full(len(lengths), 1 / len(lengths))

    def loss(params: Any) -> jax.Array | float:
        total = DECAY / 2 * sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params))
        for client, length in enumerate(lengths.tolist()):
            rows = federation.train.places[client, :length]
            images = federation.inputs[rows].astype(jnp.float32) / 127.5 - 1.0
            batch = Batch(images, federation.labels[rows], jnp.ones(length))
            context = Context({}, {}, variables, jnp.int32(0))
            total += (
                float(shares[client]) * cross_entropy(model)({"params": params}, batch, jax.random.key(0), context)[0]
            )
        return total

    return float(np.linalg.norm(flat(jax.grad(loss)(variables["params"]))))
