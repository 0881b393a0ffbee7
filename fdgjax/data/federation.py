"""The clients' data: one array of images, and for each client a padded row of positions into it.

Nothing is copied per client: a client is a row of `Rows.places` with a length, so that pooling all clients, selecting
a round's participants or giving a client a few shots of the target are operations on small integer arrays.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from fdgjax.data.encoding import Encoding
from fdgjax.data.numeric_labels import LabelScale
from fdgjax.data.sharded import ShardedImages
from fdgjax.data.sources.domains import Domains
from fdgjax.data.streaming import Streamed
from fdgjax.utils.errors import UserError


class Rows(NamedTuple):
    """Positions into the data set.

    places: int32 `[clients, longest]`, padded with zeros.
    length: int32 `[clients]`, number of positions in each row before its padding.
    """

    places: jax.Array
    length: jax.Array


class Federation(NamedTuple):
    """The data of a federation, as arrays.

    Several seeds share the data and differ in its split: the fields named in `OF_SEED` then have a leading axis,
    `[seeds, ...]` (see `stack_seeds`).

    inputs: images uint8 `[samples, height, width, channels]`, or float32 `[samples, ...]`, such as a frozen trunk's
      features: an array on the device, or on the host and read batch by batch (`Streamed`), or split so that each
      device holds its own clients' inputs (`ShardedImages`). Only `inputs[places]` and `inputs.shape` are used.
      Augmented copies of the samples' features follow all samples: copy k of sample n is at `n + k * samples`, k from
      1.
    labels: int32 `[samples]`, or numbers in their own unit, float32.
    domains: int32 `[samples]`.
    ids: int32 `[clients]`, each client's id in the random streams; it stays with the client when clients are reordered
      or selected.
    train, validation, test: `[clients, ...]`; target: one row, the unseen domain's test samples; server: one row, the
      labelled samples of a server that trains. The rows of a table that a protocol lacks are empty.
    encoding: how stored values become the model's inputs, of each seed; None for bytes of images, and for values that
      are inputs as they are.
    label_scale: how numeric labels are standardised in each minibatch, of each seed; None for classes.
    """

    inputs: jax.Array | Streamed | ShardedImages
    labels: jax.Array
    domains: jax.Array
    ids: jax.Array
    train: Rows
    validation: Rows
    test: Rows
    target: Rows
    server: Rows
    encoding: Encoding | None = None
    label_scale: LabelScale | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample as the model's input."""
        stored = tuple(self.inputs.shape[1:])
        return stored if self.encoding is None else self.encoding.input_shape(stored)


TABLES = ("train", "validation", "test", "target", "server")
"""The tables of positions of a federation."""
OF_SEED = (*TABLES, "encoding", "label_scale")
"""The fields of a federation that differ between seeds."""


class Partition(NamedTuple):
    """The split of the samples, before anything is put on a device.

    train, validation, test: sample positions of each client. target: those of the unseen domain's test samples. server:
    those of the server's labelled samples, where the server trains and clients have no labels.
    """

    train: list[np.ndarray]
    validation: list[np.ndarray]
    test: list[np.ndarray]
    target: np.ndarray
    server: np.ndarray


def pad_rows(rows: Sequence[np.ndarray]) -> Rows:
    """Rows of different lengths as one padded array of at least one column."""
    longest = max(1, *(len(r) for r in rows))
    places = np.stack([np.pad(r, (0, longest - len(r))) for r in rows])
    return Rows(on_device(places), on_device([len(r) for r in rows]))


ALIGNED = 64
"""Where an array begins that JAX takes on a CPU as it is: at a multiple of so many bytes. Others are copied."""


def on_device(values: ArrayLike, dtype: DTypeLike | None = np.int32) -> jax.Array:
    """A copy of the host's values on the device, on a CPU the only one; `jnp.asarray` would compile a program for each
    shape."""
    found = np.asarray(values, dtype)
    room = np.empty(found.nbytes + ALIGNED, np.uint8)
    begin = -room.ctypes.data % ALIGNED
    copy = room[begin : begin + found.nbytes].view(found.dtype).reshape(found.shape)
    copy[...] = found
    return jax.device_put(copy)


def federate(data: Domains, parts: Partition, *, batch_size: int, drop_last: bool) -> Federation:
    """The federation on the device.

    Raises:
      UserError: with `drop_last`, a client with fewer samples than a batch would never train.
    """
    return federate_seeds(data, [parts], batch_size=batch_size, drop_last=drop_last)[0]


def federate_seeds(
    data: Domains,
    partitions: Sequence[Partition],
    *,
    batch_size: int,
    drop_last: bool,
    streaming: bool = False,
    encodings: Sequence[Encoding | None] = (),
    label_scales: Sequence[LabelScale | None] = (),
    pooled: bool = False,
) -> list[Federation]:
    """One federation per partition, with its encoding and its labels' scale if there are any, all sharing one copy of
    the data; pooled: whether a method trains on all clients' data together. Raises like `federate`."""
    for parts in partitions:
        check_batches(parts, batch_size=batch_size, drop_last=drop_last, pooled=pooled)
    images = Streamed(np.asarray(data.inputs)) if streaming else on_device(data.inputs, None)
    none = [None] * len(partitions)
    labels, domains = on_device(data.labels, None if data.numeric else np.int32), on_device(data.domains)
    return [
        Federation(
            inputs=images,
            labels=labels,
            domains=domains,
            ids=on_device(range(len(parts.train))),
            train=pad_rows(parts.train),
            validation=pad_rows(parts.validation),
            test=pad_rows(parts.test),
            target=pad_rows([parts.target]),
            server=pad_rows([parts.server]),
            encoding=jax.tree.map(lambda leaf: on_device(leaf, None), encoding),
            label_scale=jax.tree.map(lambda leaf: on_device(leaf, None), scale),
        )
        for parts, encoding, scale in zip(partitions, encodings or none, label_scales or none, strict=True)
    ]


def check_batches(parts: Partition, *, batch_size: int, drop_last: bool, pooled: bool = False) -> None:
    """Raises a `UserError` for a client, pooled data or a labelled server that would never train."""
    sizes = {f"client {client} holds": len(rows) for client, rows in enumerate(parts.train)}
    sizes = {"the pooled data have": sum(sizes.values())} if pooled else sizes
    sizes |= {"the server holds": len(parts.server)} if len(parts.server) else {}
    for whose, size in sizes.items():
        if drop_last and size < batch_size:
            raise UserError(
                f"{whose} {size} training samples and drop_last leaves out batches smaller than "
                f"batch_size={batch_size}: it would never train; lower batch_size or set drop_last=False"
            )


def pool(federation: Federation) -> Federation:
    """The same training data at a single client, for a centralised method."""
    places, lengths = (np.asarray(leaf) for leaf in federation.train)
    rows = np.concatenate([row[:length] for row, length in zip(places, lengths, strict=True)])
    return federation._replace(ids=on_device([0]), train=pad_rows([rows]))


def without_labels(federation: Federation) -> Federation:
    """The same federation with all labels set to zero except those of the server's samples, for clients without labels:
    the program does not contain the labels of their samples."""
    (places,), (length,) = jax.device_get(federation.server)
    known, labels = places[:length], np.asarray(federation.labels)
    hidden = np.zeros_like(labels)
    hidden[known] = labels[known]
    return federation._replace(labels=on_device(hidden))


def stack_seeds(federations: Sequence[Federation]) -> Federation:
    """Federations of the same data and clients as one, with a seed axis; a single one is returned unchanged."""
    if len(federations) == 1:
        return federations[0]
    tables: dict[str, Any] = {name: stack_rows([getattr(one, name) for one in federations]) for name in TABLES}
    encoding, label_scale = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        for each in ([one.encoding for one in federations], [one.label_scale for one in federations])
    )
    return federations[0]._replace(**tables, encoding=encoding, label_scale=label_scale)


def stack_rows(tables: Sequence[Rows]) -> Rows:
    """Tables of the same number of clients, padded to the longest row of all and stacked."""
    longest = max(rows.places.shape[1] for rows in tables)
    places = [jnp.pad(rows.places, ((0, 0), (0, longest - rows.places.shape[1]))) for rows in tables]
    return Rows(jnp.stack(places), jnp.stack([rows.length for rows in tables]))


def has_seed_axis(federation: Federation) -> bool:
    """Whether the federation holds several seeds."""
    return federation.train.length.ndim == 2


def label_counts(labels: jax.Array, rows: Rows, classes: int) -> jax.Array:
    """The number of samples of each class in each row of a table, float32 `[rows, classes]`."""

    def of_row(places: jax.Array, length: jax.Array) -> jax.Array:
        real = (jnp.arange(len(places)) < length).astype(jnp.float32)
        return jnp.zeros(classes).at[labels[places]].add(real)

    return jax.vmap(of_row)(*rows)
