"""StableFDG: clients exchange the styles of their features and explore styles beyond them, on classes made equally
frequent, and attention highlights what the samples of a class have in common.

    style of a map: mean mu and deviation sigma of each channel over its pixels; changed: sigma' (z - mu) / sigma + mu'
    1. sharing      client i measures mean and deviation of its samples' styles after the first stage; the server gives
                    those of one other client to each. Half of a minibatch, all but k-means++'s seeds among the styles,
                    take styles drawn from that normal distribution
    2. exploration  copies of samples, of the rarest classes first, join the minibatch;  s' = s + level (s - mean of s)
                    for the styles s of the copies; then each style is mixed with another, shares ~ Beta(beta, beta)
    3. attention    a_j = softmax_j mean_i (q_i + q'_i) / 2 . k_j over the pixels of the last map, q' of another sample
                    of the class;  features (mean x, sum_j a_j x_j)

1 happens with the given `probability` in each minibatch, 2 after each of up to three stages of the network; the copies'
styles are extrapolated where it happens first (`fdgjax.models.styles`). With probability 0 and without attention
(`config.model.head=styled`) it is FedAvg.

**Statistics of the data are shared**: every client sends four numbers for each channel of the first stage, and receives
those of all clients; both count as communication. They are measured with the model that the client receives, and used
by others in the next round; none are known in the first.

Park, Han, Kim, Wang, Brinton and Moon, "StableFDG: Style and attention based learning for federated domain
generalization", NeurIPS 2023, and its official code (savertm/StableFDG_github). The global model predicts for an unseen
domain.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, Model, ObjectiveResult, Prepared, PyTree, Samples, Setup, Variables
from fdgjax.data.augmentations.style import EPSILON, symmetric_beta
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.bank import Bank, with_shown
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Fresh
from fdgjax.methods.parts.hyper import When, hyper
from fdgjax.methods.parts.requirements import CLASSES, SEVERAL_CLIENTS, STYLES, output_shapes
from fdgjax.models.styles import ClientStyle, Mixing, Told, shuffled
from fdgjax.objectives import mean_cross_entropy
from fdgjax.utils.variables import flatten

OFFICIAL = "Park et al., official code"
PLACES = 3
"""Stages after which styles are explored (official code)."""
STYLED = When(lambda h: h.probability > 0)


@dataclasses.dataclass(frozen=True)
class StableFDG(FedAvg):
    """FedAvg's hyperparameters and the styles'.

    probability: of style sharing in each minibatch, and of style exploration after each stage.
    copies: how many join an explored minibatch, as a multiple of its size. level: how far the copies' styles are
      extrapolated.
    beta: of Beta(beta, beta), from which the shares of mixed styles are drawn.
    """

    probability: float = hyper(0.5, most=1, search=(0.0, 0.5), source=f"{OFFICIAL}: 0.5")
    copies: int = hyper(1, search=(0, 1), source=f"{OFFICIAL}: 32 of a minibatch of 32", when=STYLED)
    level: float = hyper(3.0, search=(1.0, 3.0, 5.0), source=f"{OFFICIAL}: 3", when=STYLED)
    beta: float = hyper(0.1, above=0, most=1, search=(0.1, 0.3), source=f"{OFFICIAL}: 0.1", when=STYLED)


def stablefdg(setup: Setup, h: StableFDG) -> Method:
    """FedAvg on shared and explored styles; a client's row holds its place in the bank of styles."""
    model, base = setup.model, fedavg(setup, h)
    attends = any("/highlighter/" in path for path in flatten(model.shapes()))
    if not h.probability and not attends:
        return base

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        told, grown = tell(jax.random.fold_in(key, 1), batch, context, h)
        output, changed = model.apply({**variables, "styles": {"told": told._asdict()}}, batch.inputs, True, key)
        kept = {name: tree for name, tree in changed.items() if name != "styles"}
        return mean_cross_entropy(output.logits, grown), kept

    if not h.probability:
        return base._replace(objective=objective)

    def shapes(fresh: Fresh) -> PyTree:
        style = output_shapes(model, fresh.federation.input_shape).extra["style_mean"]
        return jax.eval_shape(lambda: ClientStyle(*[jnp.zeros(style.shape[1:])] * 4))

    exchanging = with_shown(base, shapes, lambda context, samples: Prepared(aux=client_style(model, context, samples)))
    return exchanging._replace(objective=objective)


def client_style(model: Model, context: Context, samples: Samples) -> ClientStyle:
    """The styles of a client's samples, under the model that it received."""

    def of(batch: Batch) -> tuple[jax.Array, jax.Array]:
        output = model.evaluate(context.received, batch.inputs)
        return output.extra["style_mean"], output.extra["style_deviation"]

    mask = samples.mask[:, None]
    number = jnp.sum(mask)
    styles = samples.each(of)
    means = [jnp.sum(mask * each, axis=0) / jnp.maximum(number, 1) for each in styles]
    squares = [jnp.sum(mask * jnp.square(each - mean[None]), axis=0) for each, mean in zip(styles, means, strict=True)]
    return ClientStyle(*means, *(jnp.sqrt(square / jnp.maximum(number - 1, 1) + EPSILON) for square in squares))


def tell(key: jax.Array, batch: Batch, context: Context, h: StableFDG) -> tuple[Told, Batch]:
    """What the network is told of a minibatch, and the minibatch with the copies, whose images are left out."""
    copy_key, coin_key, share_key, bits_key, order_key, mix_key = jax.random.split(key, 6)
    size = len(batch.labels)
    explore = jax.random.bernoulli(coin_key, jnp.asarray(h.probability), (PLACES,))
    copies = h.copies * size if h.probability else 0
    # A partial minibatch has copies for its samples, not for its padding: they lie where its samples do in every block
    # of its length, as BatchNorm expects where it counts samples alone.
    real = jnp.tile(batch.mask, h.copies)[:copies]
    places = jnp.maximum(jnp.cumsum(real > 0) - 1, 0)
    origin = jnp.concatenate([jnp.arange(size), rarest_first(copy_key, batch, copies)[places]])
    counted = jnp.concatenate([batch.mask, real * jnp.any(explore).astype(real.dtype)])
    labels = batch.labels[origin]

    def of_rows(draw: Callable[[jax.Array, int], jax.Array], key: jax.Array, place: int) -> jax.Array:
        own, of_copies = jax.random.split(jax.random.fold_in(key, place))
        return jnp.concatenate([draw(own, size), draw(of_copies, copies)])

    def mixture(key: jax.Array, number: int) -> jax.Array:
        return symmetric_beta(key, h.beta, number)

    mixing = Mixing(
        jnp.stack([shuffled(of_rows(fractions, order_key, place), counted) for place in range(PLACES)]),
        jnp.stack([of_rows(mixture, mix_key, place) for place in range(PLACES)]),
    )
    other, there = another_style(context) if h.probability else (no_style(), jnp.zeros((), bool))
    told = Told(
        origin=origin,
        partner=classmates(labels, counted),
        counted=counted,
        share=there & jax.random.bernoulli(share_key, jnp.asarray(h.probability)),
        bits=jax.random.key_data(bits_key),
        other=other,
        explore=explore,
        mixing=mixing,
        level=jnp.float32(h.level),
    )
    weight = jnp.broadcast_to(batch.label_weight, (size,))[origin]
    return told, batch._replace(labels=labels, mask=counted, label_weight=weight)


def no_style() -> ClientStyle:
    """Of no client."""
    return ClientStyle(*[jnp.zeros(1)] * 4)


def another_style(context: Context) -> tuple[ClientStyle, jax.Array]:
    """The style of the next client after this one in an order that is drawn for each round and the same for all
    clients, and whether there is one: where all have shown theirs, each client's goes to one other."""
    bank: Bank = context.sent.more
    clients = len(bank.there)
    order = jax.random.permutation(jax.random.fold_in(jax.random.key(0), context.round), clients)
    behind = (order - order[context.client.more]) % clients
    known = bank.there & (behind > 0)
    chosen = jnp.argmin(jnp.where(known, behind, clients))
    return jax.tree.map(lambda leaf: leaf[chosen], bank.shown), jnp.any(known)


def fractions(key: jax.Array, number: int) -> jax.Array:
    """Numbers in [0, 1)."""
    return jax.random.uniform(key, (number,))


def rarest_first(key: jax.Array, batch: Batch, number: int) -> jax.Array:
    """The samples that so many copies are of, int32 `[number]`: each copy is of a class that is rarest at that point,
    ties at random, and of a random sample of that class."""
    tie_key, sample_key = jax.random.split(key)
    present = batch.mask > 0
    # Classes by the first sample of each, so that their number need not be known.
    same = (batch.labels[:, None] == batch.labels[None]) & present[None] & present[:, None]
    first = present & (jnp.argmax(same, axis=1) == jnp.arange(len(present)))
    sizes = jnp.sum(same, axis=1, dtype=jnp.float32) + fractions(tie_key, len(present))
    levels = jnp.where(first[:, None], sizes[:, None] + jnp.arange(number, dtype=jnp.float32)[None], jnp.inf)
    of_class = jnp.argsort(levels.ravel())[:number] // max(number, 1)
    keys = jax.vmap(partial(jax.random.fold_in, sample_key))(jnp.arange(number))
    drawn = jax.vmap(lambda one: fractions(one, len(present)))(keys)
    return jnp.argmax(jnp.where(same[of_class], drawn, -1), axis=1).astype(jnp.int32)


def classmates(labels: jax.Array, counted: jax.Array) -> jax.Array:
    """For each row the next counted one with its label, around the end; itself where there is none; int32 `[rows]`."""
    rows = jnp.arange(len(labels))
    behind = (rows[None] - rows[:, None]) % len(rows)
    mates = (labels[:, None] == labels[None]) & (counted[None] > 0) & (behind > 0)
    nearest = jnp.argmin(jnp.where(mates, behind, len(rows)), axis=1)
    return jnp.where(jnp.any(mates, axis=1), nearest, rows).astype(jnp.int32)


ENTRY = Entry(
    "stablefdg",
    StableFDG,
    stablefdg,
    "styles of features shared and explored, attention: shares data statistics (Park et al., 2023)",
    title="StableFDG",
    head="highlighted",
    needs=(CLASSES, STYLES, SEVERAL_CLIENTS),
)
