"""SemiFL: clients train on confident pseudo-labels, mixed (MixUp) with all their samples; the server on its labels.

    y_j, p_j <- guess(w, x_j);    D_fix = {j : p_j >= tau};    D_mix = all samples of the client
    L_i = mean over D_fix of  CE(f(A(x_j)), y_j) + lambda [ m CE(f(x~_j), y_j) + (1 - m) CE(f(x~_j), y_k) ],
          x~_j = m a(x_j) + (1 - m) a(x_k),    k from D_mix with replacement,    m from Beta(alpha, alpha)
    an epoch has ceil(|D_fix| / batch) steps, over D_fix alone
    w <- w + sum_i p_i (w_i - w) over clients with non-empty D_fix;    w <- local epochs at the server from w

a and A are weak and strong views: shifts, and shifts with a rectangle cut out
(`fdgjax.data.augmentations.weak_strong`), instead of the paper's RandAugment.
Pseudo-labels are generated once a round; m is drawn for each minibatch. A client with empty D_fix is left out of the
aggregate and keeps its row, as is one whose D_fix gives no whole batch under `drop_last`. BatchNorm layers are as in
SSFL. With tau = lambda = 0, no augmentation, the server `first`, and SSFL's weights, momentum and order of the server's
samples, it is SSFL with `guess=argmax`.

Diao, Ding and Tarokh, "SemiFL: semi-supervised federated learning for unlabeled clients with alternate training",
NeurIPS 2022, Algorithm 1, and its official code.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Context, Method, Prepared, PyTree, Samples, ServerStep, Setup, Trained
from fdgjax.data.augmentations.weak_strong import VIEWS
from fdgjax.methods.fedavg import Message
from fdgjax.methods.parts.entry import Entry, always
from fdgjax.methods.parts.extend import Extended, aux_of_steps, extend
from fdgjax.methods.parts.hyper import When, hyper, momentum_of
from fdgjax.methods.parts.requirements import FEATURES
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.methods.parts.setting_presets import SERVED_AND_MIXED
from fdgjax.methods.parts.sharing import ClientVariables
from fdgjax.methods.ssfl import LABELLERS, SSFL, assign_labels, fedavg_with_server
from fdgjax.objectives import cross_entropy, fixed_and_mixed, on_view
from fdgjax.utils.registry import lookup

LAST: Mapping[str, bool] = {"first": False, "last": True}
"""When in a round the server trains."""


@dataclasses.dataclass(frozen=True)
class SemiFL(SSFL):
    """SSFL's hyperparameters, with SemiFL's choices.

    threshold: tau, the least confidence. mix: lambda, the weight of the mixed samples' loss. alpha: of m's
      distribution, Beta(alpha, alpha).
    augmentation: the views, an entry of `fdgjax.data.augmentations.weak_strong.VIEWS`.
    server: when in a round it trains: `last`, after the aggregation, or `first`.
    """

    weighting: str = hyper("uniform", search=("uniform", "samples"), source="Diao et al., official code")
    server_momentum: float = hyper(
        0.5,
        most=1,
        search=(0.0, 0.5, 0.9),
        source="Diao et al., section 4: 0.5",
        when=momentum_of("server_optimizer"),
    )
    guess: str = hyper("argmax", search=tuple(LABELLERS), source="Diao et al., Algorithm 1")
    class_aware: bool = hyper(False, search=(True, False), source="Diao et al., Algorithm 1")
    threshold: float = hyper(0.95, most=1, search=(0.0, 0.8, 0.95), source="Diao et al., official code: 0.95")
    mix: float = hyper(1.0, most=1, search=(0.0, 0.5, 1.0), source="Diao et al., official code: 1")
    alpha: float = hyper(
        0.75,
        above=0,
        search=(0.5, 0.75, 1.0),
        source="Diao et al., official code: 0.75",
        when=When(lambda h: h.mix > 0),
    )
    augmentation: str = hyper("shift", search=tuple(VIEWS), source="docs/deviations.md")
    server: str = hyper("last", search=tuple(LAST), source="Diao et al., official code")


def semifl(setup: Setup, h: SemiFL) -> Method:
    """SSFL on confident pseudo-labels, with weak and strong views and mixed samples."""
    views = lookup("augmentation", h.augmentation, VIEWS)
    base = fedavg_with_server(
        setup,
        h,
        server=on_view(cross_entropy(setup.model), views.weak),
        client=fixed_and_mixed(setup.model, views, mix=h.mix, alpha=h.alpha),
        last=lookup("server", h.server, LAST),
    )

    def finish(context: Context, trained: Trained) -> tuple[Message, ClientVariables]:
        message, kept = base.finish(context, trained)
        used = aux_of_steps(context, trained, kept) > 0
        return message, optax.tree.where(used, kept, context.client)

    extended = extend(base._replace(finish=finish), message=aux_of_steps)

    def aggregate(
        server: ServerState, clients: ClientVariables, messages: Extended, weights: jax.Array
    ) -> tuple[Extended, PyTree]:
        counted = jnp.where(messages.more > 0, weights, 0)
        average, coefficients = extended.aggregate(server, clients, messages, counted)
        return Extended(average, jnp.any(counted > 0)), coefficients

    def update(
        server: ServerState, clients: ClientVariables, step: Extended, server_step: ServerStep
    ) -> tuple[ServerState, ClientVariables]:
        moved, clients = extended.update(server, clients, step.base, server_step)
        # Without any counted client, momentum does not move the server's model either, as in the official code.
        return optax.tree.where(step.more, moved, server), clients

    prepare = sure_labels(assign_labels(setup.model, h), h.threshold)
    return extended._replace(prepare=prepare, aggregate=aggregate, update=update, extra_batch=h.mix > 0)


def sure_labels(
    assign: Callable[[Context, Samples], Prepared], threshold: float
) -> Callable[[Context, Samples], Prepared]:
    """The pseudo-labels of D_fix get weight 1, the others 0; `aux` is the size of D_fix."""

    def prepare(context: Context, samples: Samples) -> Prepared:
        labels = assign(context, samples).pseudo_labels
        assert labels is not None
        label_weight = jnp.where(labels.confidence >= threshold, samples.mask, 0)
        return Prepared(labels._replace(label_weight=label_weight), aux=jnp.sum(label_weight))

    return prepare


ENTRY = Entry(
    "semifl",
    SemiFL,
    semifl,
    "labelled server, confident pseudo-labels, MixUp (Diao et al., 2022)",
    title="SemiFL",
    pixels=always,
    protocol="labelled_server",
    presets=SERVED_AND_MIXED,
    needs=(FEATURES,),
)
