"""FedDG-GA (generalization adjustment): clients with a larger generalization gap get a larger weight.

In the t-th round (from 0), for each of its clients that took part before:

    g_i   = l_i(w) - l_i(w_i)                       on its own data; w as received, w_i the model it trained last
    a_i  <- clip(a_i + d (1 - (t - 1) / T) / 3 * g_i / max_j |g_j|, 0, 1),    then renormalised
    w    <- sum_i a_i w_i                           w_i the models trained in this round

l_i is the mean cross-entropy, or minus the accuracy. a starts as the usual weights (uniform in paper and official
code), so that the first round is FedAvg's; with d = 0 all rounds are. The server keeps the weights in the clients'
rows; a client sends one number more than in FedAvg. It measures the gap before it trains, when it has its former model
and the aggregated one (with client sampling, possibly of a later round than its last). The weights of a round's clients
are renormalised to their former sum. w predicts for an unseen domain.

Zhang, Xu, Yao, Zhang, Tsang and Wang, "Federated domain generalization with generalization adjustment", CVPR 2023,
Algorithm 1, and its official code (step over three, and clipping before the weights are renormalised).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.weighting import keep_rows, normalise_weights
from fdgjax.contract import Batch, Context, Method, Prepared, PyTree, Samples, ServerStep, Setup, Trained, Variables
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, aux, extend
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import CLASSES, SEVERAL_PARTICIPANTS
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.objectives.cross_entropy import label_losses, masked_mean
from fdgjax.utils.registry import lookup

COSTS: Mapping[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "loss": label_losses,
    "accuracy": lambda logits, labels: -(jnp.argmax(logits, axis=1) == labels).astype(jnp.float32),
}
"""The cost l of each prediction, `(logits, labels) -> [batch]`."""


@dataclasses.dataclass(frozen=True)
class FedDGGA(FedAvg):
    """FedAvg's hyperparameters and those of the weights.

    weighting: that of the first round.
    step: d, the largest change of a weight in the first round. gap: the cost that measures the gap, an entry of
    `COSTS`.
    """

    weighting: str = hyper("uniform", search=("uniform", "samples"), source="Zhang et al., official code")
    step: float = hyper(0.2, most=1, search=(0.0, 0.05, 0.1, 0.2), source="Zhang et al., official code: 0.2")
    gap: str = hyper(
        "loss", search=tuple(COSTS), source="Zhang et al.: losses; official code: either, by default accuracies"
    )


class GapState(NamedTuple):
    """What a client's row holds: the model it trained last, the number of rounds completed by then (0 before its
    first), and its weight a."""

    model: Variables
    rounds: jax.Array
    weight: jax.Array


def feddg_ga(setup: Setup, h: FedDGGA) -> Method:
    """FedAvg with adjusted weights.

    Raises:
      UserError: unknown gap.
    """
    cost, model = lookup("gap", h.gap, COSTS), setup.model

    base = fedavg(setup, h)

    def begin(fresh: Fresh) -> GapState:
        ids, counts = fresh.federation.ids, fresh.federation.train.length
        return GapState(fresh.models(), jnp.zeros_like(ids), normalise_weights(base.weights(counts), len(ids)))

    def after(context: Context, trained: Trained) -> GapState:
        return GapState(trained.variables, context.round + 1, context.client.more.weight)

    extended = extend(base, row=RowExtension(begin, after), message=aux)

    def prepare(context: Context, samples: Samples) -> Prepared:
        past = context.client.more

        def costs(batch: Batch) -> tuple[jax.Array, ...]:
            def of(variables: Variables) -> jax.Array:
                return cost(model.evaluate(variables, batch.inputs).logits, batch.labels)

            return of(context.received), of(past.model), batch.mask * batch.label_weight

        of_received, of_own, counted = samples.each(costs)
        return Prepared(aux=jnp.where(past.rounds > 0, masked_mean(of_received - of_own, counted * samples.mask), 0))

    def aggregate(
        server: ServerState, clients: Extended, messages: Extended, weights: jax.Array
    ) -> tuple[Extended, PyTree]:
        past, there = clients.more, weights > 0
        # The rows are those after training, so they already count the current round.
        done = (jnp.max(past.rounds) - 2).astype(jnp.float32) / setup.rounds
        adjusted = adjust(past.weight, messages.more, there, h.step * (1 - done))
        step, info = extended.aggregate(server, clients, messages, jnp.where(there, adjusted, 0))
        return Extended(step, adjusted), info

    def update(
        server: ServerState, clients: Extended, step: Extended, server_step: ServerStep
    ) -> tuple[ServerState, Extended]:
        server, clients = extended.update(server, clients, step.base, server_step)
        return server, clients._replace(more=clients.more._replace(weight=step.more))

    return extended._replace(prepare=prepare, aggregate=aggregate, update=update)


def adjust(weights: jax.Array, gaps: jax.Array, there: jax.Array, step: jax.Array | float) -> jax.Array:
    """The clients' weights after a round, `[clients]`; those not in the round (`there`) keep theirs.

    If all weights would be clipped to zero, nothing changes.
    """
    gaps = jnp.where(there, gaps, 0)
    largest = jnp.max(jnp.abs(gaps))
    moved = jnp.clip(weights + step / 3 * gaps / jnp.where(largest > 0, largest, 1), 0, 1)
    before, after = (jnp.sum(jnp.where(there, w, 0)) for w in (weights, moved))
    return keep_rows(there & (after > 0), moved * before / jnp.where(after > 0, after, 1), weights)


LOSSES = CLASSES._replace(
    lack="labels that are numbers, and gap=accuracy is of classes",
    met=lambda given: not given.numeric or given.hyper.gap != "accuracy",
    remedy="config.method.gap=loss, or config.task=classification",
)
"""With numbers, the gap is one of losses."""
ENTRY = Entry(
    "feddg_ga",
    FedDGGA,
    feddg_ga,
    "weights by the clients' generalization gaps (Zhang et al., 2023)",
    title="FedDG-GA",
    needs=(LOSSES, SEVERAL_PARTICIPANTS),
)
