"""Client embeddings from the clients' data: the latent means of an autoencoder (hFedF v2, appendix C.2, Table 6)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Execution, ObjectiveResult, Variables
from fdgjax.data.augmentations.view import check_images
from fdgjax.data.federation import Federation, Rows
from fdgjax.engine.clients import over_clients
from fdgjax.engine.local import Batching, LocalData, LocalTraining, slice_rows, take_batch, train_locally
from fdgjax.methods.parts.optimizers import optimizer
from fdgjax.models.autoencoder import Autoencoder
from fdgjax.objectives.cross_entropy import masked_mean
from fdgjax.utils.random import shuffle


class EmbeddingTraining(NamedTuple):
    """How the autoencoder is trained.

    dim: e, the size of the latent vector. epochs: local passes (not stated in the paper).
    images: training images per client (paper: 100). learning_rate: of Adam (not stated).
    """

    dim: int
    epochs: int = 10
    images: int = 100
    learning_rate: float = 1e-3


def autoencoder_embeddings(
    training: EmbeddingTraining, execution: Execution, key: jax.Array, federation: Federation
) -> jax.Array:
    """One fixed embedding per client, `[clients, dim]`.

    Every client receives the same autoencoder, trains it on some of its training images, drawn at random, by the
    squared error of the pixels in [0, 1], and sends the mean latent vector of its validation images.

    Raises:
      UserError: inputs that are no images.
    """
    expected = "method.embeddings=learned or random"
    check_images("the autoencoder of method.embeddings=fixed", (1, *federation.input_shape), expected)
    height, width, channels = federation.input_shape
    network = Autoencoder(embedding=training.dim, image_shape=(height, width, channels))
    init_key, train_key = jax.random.split(key)
    received = dict(network.init(init_key, jnp.zeros((1, height, width, channels))))
    adam = optimizer("adam", learning_rate=training.learning_rate)

    def reconstruction(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del key, context
        pixels = to_pixels(batch)
        reconstructed, _ = network.apply(variables, pixels)
        errors = jnp.mean(jnp.square(reconstructed - pixels), axis=(1, 2, 3))
        return masked_mean(errors, batch.mask), {}

    def one_client(federation: Federation, client_id: jax.Array, train: Rows, held_out: Rows) -> jax.Array:
        choice_key, key = jax.random.split(jax.random.fold_in(train_key, client_id))
        context, begin = Context({}, {}, received, jnp.zeros((), jnp.int32)), adam.init(received["params"])
        drawn = shuffle(choice_key, train.places, train.length)[: training.images]
        batching = Batching(training.epochs, min(32, training.images), drop_last=False)
        trained = train_locally(
            LocalTraining(reconstruction, adam, batching),
            LocalData(federation, drawn, jnp.minimum(train.length, training.images)),
            context,
            begin,
            key,
        )
        rows, mask = slice_rows(held_out.places, held_out.length, 0, len(held_out.places))
        batch = take_batch(federation, rows, mask)
        latent = jnp.asarray(network.apply(trained.variables, to_pixels(batch), method=network.encode))
        return jnp.sum(latent * batch.mask[:, None], axis=0) / jnp.sum(batch.mask)

    over = over_clients(one_client, execution._replace(axis="map"))
    return over(federation, federation.ids, federation.train, federation.validation)


def to_pixels(batch: Batch) -> jax.Array:
    """Images in [0, 1], the range of the autoencoder's sigmoid."""
    return (batch.inputs + 1) / 2
