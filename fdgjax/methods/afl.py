"""AFL (agnostic federated learning): the model for the mixture of clients that is worst for it.

    min over w, max over lambda in the simplex:   sum_i lambda_i L_i(w)

    l_i    = L_i(w)                               on all its training data, w as received
    w_i    <- local epochs from w;    w <- w + sum_S lambda_i (w_i - w) / sum_S lambda_i
    lambda <- P(lambda + gamma l)                 P the projection onto the simplex; l_i = 0 for i outside S

L_i is the mean cross-entropy, S the round's clients. With one local step of SGD over all data of a client, the step of
w is the paper's, which descends along the gradient of the sum; more steps are to it as FedAvg is to FedSGD. lambda
starts as the usual weights, and with gamma = 0 it stays there: FedAvg. The server keeps lambda; a client sends one
number more than in FedAvg. w predicts for an unseen domain.

Mohri, Sivek and Suresh, "Agnostic federated learning", ICML 2019, Stochastic-AFL.
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation.weighting import normalise_weights
from fdgjax.contract import Batch, Context, Method, Prepared, PyTree, Samples, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, aux, extend, keeping_more
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import SEVERAL_CLIENTS
from fdgjax.objectives.cross_entropy import label_losses, masked_mean


@dataclasses.dataclass(frozen=True)
class AFL(FedAvg):
    """FedAvg's hyperparameters and the mixture's.

    weighting: the first mixture. rate: gamma, the mixture's step.
    """

    weighting: str = hyper("uniform", search=("uniform", "samples"), source="docs/deviations.md")
    rate: float = hyper(
        0.01, search=(0.001, 0.01, 0.1), source="FedDG_Benchmark (Bai et al., 2024): 0.01 on CelebA, 0.1 on PACS"
    )


def afl(setup: Setup, h: AFL) -> Method:
    """FedAvg with the worst mixture: lambda, `[clients]`, at the server, and in a client's row its place in it."""
    model, base = setup.model, fedavg(setup, h)

    def mixture(fresh: Fresh) -> jax.Array:
        counts = fresh.federation.train.length
        return normalise_weights(base.weights(counts), len(counts))

    places = RowExtension(lambda fresh: jnp.arange(len(fresh.federation.ids)))
    extended = extend(base, server=mixture, row=places, message=aux)

    def prepare(context: Context, samples: Samples) -> Prepared:
        def losses(batch: Batch) -> tuple[jax.Array, jax.Array]:
            output = model.evaluate(context.received, batch.inputs)
            return label_losses(output.logits, batch.labels), batch.mask * batch.label_weight

        each, counted = samples.each(losses)
        return Prepared(aux=masked_mean(each, counted * samples.mask))

    def aggregate(
        server: Extended, clients: Extended, messages: Extended, weights: jax.Array
    ) -> tuple[Extended, PyTree]:
        there, mixture = weights > 0, server.more
        step, info = extended.aggregate(server, clients, messages, jnp.where(there, mixture[clients.more], 0))
        ascended = mixture.at[clients.more].add(h.rate * jnp.where(there, messages.more, 0))
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
            return Extended(step, optax.projections.projection_simplex(ascended)), info

    return extended._replace(prepare=prepare, aggregate=aggregate, update=keeping_more(extended))


ENTRY = Entry(
    "afl", AFL, afl, "weights of the worst mixture (Mohri et al., 2019)", title="AFL", needs=(SEVERAL_CLIENTS,)
)
