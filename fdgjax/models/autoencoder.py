"""The autoencoder from whose latent vectors hFedF derives fixed client embeddings (paper v2, appendix C.2,
table 6)."""

import math
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.nn import Conv, ConvTranspose, Dense, max_pool


class Autoencoder(nn.Module):
    """Table 6: two convolutions with max-pools and a linear layer to the latent vector, and the mirrored decoder.

    A client's embedding is the mean of `encode` over its images, after training on the squared error of the
    reconstruction. Height or width not divisible by 4 is extended by repeating the last row or column; the
    reconstruction is cropped.

    Attributes:
      embedding: length of the latent vector.
      image_shape: `(H, W, channels)`, which the decoder needs.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
    """

    embedding: int
    image_shape: tuple[int, int, int] = (32, 32, 3)
    init_name: str = "torch"

    def setup(self) -> None:
        """The layers of table 6, encoder then decoder."""
        conv, dense = partial(Conv, init_name=self.init_name), partial(Dense, init_name=self.init_name)
        up = partial(ConvTranspose, init_name=self.init_name)
        self.conv_1 = conv(16, (3, 3))
        self.conv_2 = conv(32, (3, 3))
        self.linear_1 = dense(self.embedding)
        self.linear_2 = dense(math.prod(self.code_shape))
        self.up_1 = up(16, (2, 2))
        self.up_2 = up(self.image_shape[-1], (2, 2))

    @property
    def code_shape(self) -> tuple[int, int, int]:
        """Shape of the last feature map: `(ceil(H / 4), ceil(W / 4), 32)`."""
        height, width, _ = self.image_shape
        return -(-height // 4), -(-width // 4), 32

    def encode(self, x: jax.Array) -> jax.Array:
        """Images `[batch, H, W, channels]` in [0, 1] -> latent vectors `[batch, embedding]`."""
        if x.shape[1:] != self.image_shape:
            raise ValueError(f"Autoencoder got images {x.shape[1:]}, expected {self.image_shape}: set image_shape")
        extra = [(0, -size % 4) for size in x.shape[1:3]]
        x = jnp.pad(x, [(0, 0), *extra, (0, 0)], mode="edge")
        x = max_pool(nn.relu(self.conv_1(x)), 2)
        x = max_pool(nn.relu(self.conv_2(x)), 2)
        return self.linear_1(x.reshape(x.shape[0], -1))

    def decode(self, latent: jax.Array) -> jax.Array:
        """Latent vectors `[batch, embedding]` -> images `[batch, H, W, channels]` in [0, 1]."""
        x = self.linear_2(latent).reshape(latent.shape[0], *self.code_shape)
        x = nn.sigmoid(self.up_2(nn.relu(self.up_1(x))))
        return x[:, : self.image_shape[0], : self.image_shape[1]]

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Images `[batch, H, W, channels]` in [0, 1] -> (reconstruction, latent vectors)."""
        latent = self.encode(x)
        return self.decode(latent), latent
