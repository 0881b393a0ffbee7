"""Vision transformers (Dosovitskiy et al., "An image is worth 16x16 words", 2021), ViT-B/8 by default."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn import initializers

from fdgjax.models.stages import ALL_STAGES, StageRange, last_step, through
from fdgjax.models.units import Unit, no_activation, plain_unit
from fdgjax.nn import Conv, Dense
from fdgjax.utils.errors import UserError

HEADS, HEAD_SIZE = 12, 64
"""Number and size of ViT-B's heads at width 1: 768 features."""

DEPTH = 12
STAGES = ("patches", *(f"block_{i}" for i in range(1, DEPTH + 1)))
"""`patches` makes the tokens with their positions; the last block includes the class token's LayerNorm."""

layer_norm = partial(nn.LayerNorm, epsilon=1e-6)


class EncoderBlock(nn.Module):
    """x + attention(LN(x)), then x + MLP(LN(x)); the MLP widens four times, with GELU between its two linear layers.

    Attributes:
      heads: number of attention heads.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`, for the MLP.
      unit: the factory of the MLP's second layer, `mlp_2`.
    """

    heads: int
    init_name: str
    unit: Unit

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, tokens, features]` -> the same shape."""
        dense, features = partial(Dense, init_name=self.init_name), x.shape[-1]
        x = x + nn.MultiHeadDotProductAttention(self.heads, name="attention")(layer_norm(name="norm_1")(x))
        y = nn.gelu(dense(4 * features, name="mlp_1")(layer_norm(name="norm_2")(x)), approximate=False)
        return x + self.unit(dense, features, activation=no_activation, name="mlp_2")(y, train=train)


class ViT(nn.Module):
    """ViT-B/8: 86,576,872 parameters for 224x224 images and 1000 classes, as timm's. Logits come from a class token.

    Position embeddings are learned, one for each patch of the image and one for the class token, so that a network
    works for one image size only.

    Attributes:
      classes: number of logits.
      width: factor on the 12 heads of 64 features each, and thus on all features: 0.5 is ViT-S, 0.25 ViT-Ti. Below one
        head, the head itself narrows.
      depth: number of blocks.
      patch: side of a patch; the image's sides have to be multiples of it.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`, for all layers but the attention's, which use Flax's defaults.
      unit: the factory of each block's last layer (see `fdgjax.models.units`): `DSEUnit` gives FDSE's variant, which
        replaces the feed-forward layer's last operator (appendix A8.1).
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    depth: int = DEPTH
    patch: int = 8
    init_name: str = "flax"
    unit: Unit = plain_unit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`.

        Raises:
          UserError: an image that is not made of whole patches.
        """
        heads = max(1, round(self.width * HEADS))
        features = heads * max(1, round(self.width * HEADS * HEAD_SIZE / heads))

        def block(tokens: jax.Array, number: int) -> jax.Array:
            tokens = EncoderBlock(heads, self.init_name, self.unit, name=f"block_{number}")(tokens, train=train)
            # Only for the class token: LayerNorm treats each token by itself.
            return layer_norm(name="norm")(tokens[:, 0]) if number == self.depth else tokens

        head = last_step(self, Dense(self.classes, init_name=self.init_name, name="head"))
        blocks = [partial(block, number=i) for i in range(1, self.depth + 1)]
        return through([partial(self._tokens, features=features), *blocks, head], self.part, x)

    def _tokens(self, x: jax.Array, features: int) -> jax.Array:
        """Images -> `[batch, patches + 1, features]`, the class token first."""
        if x.shape[1] % self.patch or x.shape[2] % self.patch:
            raise UserError(
                f"ViT got images of {x.shape[1]} x {x.shape[2]} pixels; expected multiples of its patches' side, "
                f"{self.patch}: set data.image_size (published: 224)"
            )
        patches = Conv(features, (self.patch,) * 2, self.patch, "VALID", init_name=self.init_name, name="patches")(x)
        tokens = patches.reshape(len(x), -1, features)
        token = self.param("class_token", initializers.normal(0.02), (1, 1, features))
        tokens = jnp.concatenate([jnp.broadcast_to(token, (len(x), 1, features)), tokens], axis=1)
        return tokens + self.param("positions", initializers.normal(0.02), (1, *tokens.shape[1:]))
