"""Statistics of clients' data that travel through the server to all other clients (CCST, FedCCRL, FedDG, StableFDG)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.weighting import keep_rows
from fdgjax.contract import Context, Method, Prepared, PrepareFn, PyTree, Samples
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, aux, extend, keeping_more


class Bank(NamedTuple):
    """The statistics that each client showed last, `[clients, ...]` (of images: `[clients, images, ...]`), in the order
    of ids; `there`: which clients have shown any."""

    shown: PyTree
    there: jax.Array


class DrawnImages(NamedTuple):
    """Images of other clients: the places of a client and of one of its images, int32 `[count]` each; whether there is
    any other client."""

    client: jax.Array
    image: jax.Array
    any: jax.Array


def with_bank(base: Method, show: Callable[[jax.Array], PyTree], images: int) -> Method:
    """`with_shown` for statistics of each client's next `images` images, in the order of its samples.

    Args:
      base: a method that has no `prepare`.
      show: `(images [batch, H, W, channels]) -> [batch, ...]`.
      images: shown by each client.
    """

    def shapes(fresh: Fresh) -> PyTree:
        return jax.eval_shape(show, jax.ShapeDtypeStruct((images, *fresh.federation.input_shape), jnp.float32))

    def prepare(context: Context, samples: Samples) -> Prepared:
        every = samples.each(lambda batch: show(batch.inputs))
        following = context.round * images + jnp.arange(images)
        places = following % jnp.sum(samples.mask).astype(following.dtype)
        return Prepared(aux=jax.tree.map(lambda leaf: leaf[places], every))

    return with_shown(base, shapes, prepare)


def with_shown(base: Method, shapes: Callable[[Fresh], PyTree], prepare: PrepareFn) -> Method:
    """The base method with an exchange: in each round clients show the `aux` of `prepare`, and receive what all clients
    showed last, which the server keeps.

    A client's row holds its place in the bank (`context.client.more`), which is sent as `context.sent.more`. The bank
    is empty in the first round.

    Args:
      base: a method that has no `prepare`.
      shapes: of what a client shows.
      prepare: makes it.
    """

    def empty(fresh: Fresh) -> Bank:
        clients = len(fresh.federation.ids)
        nothing = jax.tree.map(lambda one: jnp.zeros((clients, *one.shape)), shapes(fresh))
        return Bank(nothing, jnp.zeros(clients, bool))

    extended = extend(
        base,
        server=empty,
        sent=lambda server, row: server.more,
        row=RowExtension(lambda fresh: jnp.argsort(jnp.argsort(fresh.federation.ids))),
        message=aux,
    )

    def aggregate(
        server: Extended, clients: Extended, messages: Extended, weights: jax.Array
    ) -> tuple[Extended, PyTree]:
        average, info = extended.aggregate(server, clients, messages, weights)
        places, seen, (shown, there) = clients.more, weights > 0, server.more
        latest = keep_rows(seen, messages.more, jax.tree.map(lambda leaf: leaf[places], shown))
        shown = jax.tree.map(lambda leaf, new: leaf.at[places].set(new), shown, latest)
        return Extended(average, Bank(shown, there.at[places].set(there[places] | seen))), info

    return extended._replace(prepare=prepare, aggregate=aggregate, update=keeping_more(extended))


def draw_others(who: jax.Array, which: jax.Array, context: Context, count: int) -> DrawnImages:
    """Random places of other clients' images in the bank, by two keys; arbitrary ones if there is no other client."""
    shown, others = others_in(context)
    client = jax.random.categorical(who, jnp.where(others, 0.0, -jnp.inf), shape=(count,))
    images = jax.tree.leaves(shown)[0].shape[1]
    return DrawnImages(client, jax.random.randint(which, (count,), 0, images), jnp.any(others))


def draw_different_others(
    who: jax.Array, which: jax.Array, context: Context, count: int, copies: int
) -> list[DrawnImages]:
    """`draw_others` for each of several copies of `count` images, an image's from clients that differ while there are
    enough of them; a client is as likely as any other to be a copy's."""
    shown, others = others_in(context)
    known = jnp.sum(others)
    # The order of uniform numbers is a random permutation; clients without images come last.
    scores = jnp.where(others[None], jax.random.uniform(who, (count, len(others))), 2.0)
    order = jnp.argsort(scores, axis=1)
    images = jax.tree.leaves(shown)[0].shape[1]
    place = jax.random.randint(which, (copies, count), 0, images)
    return [DrawnImages(order[:, copy % jnp.maximum(known, 1)], place[copy], known > 0) for copy in range(copies)]


def others_in(context: Context) -> tuple[PyTree, jax.Array]:
    """What is in the bank, and which clients other than this one have shown something, bool `[clients]`."""
    shown, there = context.sent.more
    return shown, there & (jnp.arange(len(there)) != context.client.more)
