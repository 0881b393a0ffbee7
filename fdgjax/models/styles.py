"""StableFDG's parts of a network: the styles of its maps, shared between clients and explored, and the attention that
highlights what the samples of a class have in common (Park et al., "StableFDG: Style and attention based learning for
federated domain generalization", NeurIPS 2023, and its official code).

The style of a map `[H, W, C]` is the mean mu and the deviation sigma of each channel over its pixels; a map in another
style is `sigma' (x - mu) / sigma + mu'`.
"""

from itertools import count
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.data.augmentations.style import EPSILON, Style
from fdgjax.models.stages import with_passages
from fdgjax.nn import Dense, unit_length
from fdgjax.nn.geometry import at_least_float32


class ClientStyle(NamedTuple):
    """The mean and the deviation over a client's samples of their styles' mu (`mean`, `mean_spread`) and sigma
    (`deviation`, `deviation_spread`), `[C]` each."""

    mean: jax.Array
    deviation: jax.Array
    mean_spread: jax.Array
    deviation_spread: jax.Array


class Mixing(NamedTuple):
    """With which row each row is mixed, int32, and its own share; `[rows]`, or `[places, rows]`."""

    other: jax.Array
    share: jax.Array


class Told(NamedTuple):
    """What an objective tells a `StyledHead` of a minibatch of B samples, in the collection `styles`. Its maps have B
    rows up to the first place, and those of `origin` from there on.

    origin: int32 `[rows]`, the sample that each row is (the first B rows: themselves) or is a copy of.
    partner: int32 `[rows]`, another row of the same class; a row without one is its own.
    counted: float32 `[rows]`, 0 for padding and for copies that are not used.
    share: whether half of the samples take the style `other`, of another client, drawn by the random `bits`.
    explore: bool `[places]`, whether styles are explored at each of the first places, and how they are mixed there.
    level: of the extrapolation.
    """

    origin: jax.Array
    partner: jax.Array
    counted: jax.Array
    share: jax.Array
    bits: jax.Array
    other: ClientStyle
    explore: jax.Array
    mixing: Mixing
    level: jax.Array


def map_style(x: jax.Array) -> Style:
    """The styles of maps `[batch, H, W, C]`, with the unbiased variance; that of one pixel is 0."""
    pixels = x.shape[1] * x.shape[2]
    variance = jnp.var(x, (1, 2)) * (pixels / max(pixels - 1, 1))
    return Style(jnp.mean(x, (1, 2)), jnp.sqrt(variance + EPSILON))


def normalised(x: jax.Array, own: Style) -> jax.Array:
    """`(x - mu) / sigma` of maps `[batch, H, W, C]`."""
    return (x - over_pixels(own.mean)) / over_pixels(own.deviation)


def restyled(plain: jax.Array, style: Style) -> jax.Array:
    """Normalised maps in given styles."""
    return over_pixels(style.deviation) * plain + over_pixels(style.mean)


def over_pixels(statistic: jax.Array) -> jax.Array:
    """`[batch, C]` -> `[batch, 1, 1, C]`."""
    return statistic[:, None, None]


def far_apart(key: jax.Array, points: jax.Array, counted: jax.Array, most: int) -> jax.Array:
    """The rows that k-means++ begins from (Arthur & Vassilvitskii, 2007), int32 `[most]`: the first at random, each
    other with a probability proportional to its squared distance from the nearest before it.

    Args:
      key: of the draws.
      points: `[batch, d]`. counted: `[batch]`, 0 for rows that are never drawn while others are left.
      most: how many.
    """

    def drawn(number: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.random.categorical(jax.random.fold_in(key, number), jnp.log(weights)).astype(jnp.int32)

    def one(number: jax.Array, found: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rows, nearest = found
        row = drawn(number, jnp.where(number > 0, nearest, 1.0) * counted)
        distance = jnp.sum(jnp.square(points - points[row][None]), axis=1)
        return rows.at[number].set(row), jnp.minimum(nearest, distance)

    begin = (jnp.zeros(most, jnp.int32), jnp.full(len(points), jnp.finfo(points.dtype).max))
    return jax.lax.fori_loop(0, most, one, begin)[0] if most else begin[0]


def shifted(key: jax.Array, x: jax.Array, other: ClientStyle, counted: jax.Array) -> jax.Array:
    """Maps of which half keep their styles, k-means++'s seeds among the styles, and the others take the style of
    another client: `mu' ~ N(mean, mean_spread^2)`, and sigma' likewise but not below 0, for each sample and channel. No
    gradient goes through a style.

    Args:
      key: of the draws.
      x: `[batch, H, W, C]`. counted: `[batch]`.
      other: the other client's.
    """
    seeds_key, *noise = jax.random.split(key, 3)
    own = jax.lax.stop_gradient(map_style(x))
    seeds = far_apart(seeds_key, jnp.concatenate(own, axis=1), counted, len(x) // 2)
    half = jnp.sum(counted).astype(jnp.int32) // 2
    # Seeds beyond the half of a partial batch point nowhere.
    places = jnp.where(jnp.arange(len(seeds)) < half, seeds, len(x))
    stays = jnp.zeros(len(x), bool).at[places].set(True, mode="drop")[:, None]
    draws = [jax.random.normal(one, own.mean.shape, own.mean.dtype) for one in noise]
    mean = other.mean[None] + draws[0] * other.mean_spread[None]
    deviation = jnp.maximum(other.deviation[None] + draws[1] * other.deviation_spread[None], 0)
    new = Style(jnp.where(stays, own.mean, mean), jnp.where(stays, own.deviation, deviation))
    return restyled(normalised(x, own), new)


def explored(x: jax.Array, counted: jax.Array, extended: jax.Array, level: jax.Array, mixing: Mixing) -> jax.Array:
    """Maps in styles beyond those of the minibatch, mixed among its samples:

        s' = s + level (s - mean of s)  for the rows to be extended, s' = s for others
        s'' = share s' + (1 - share) s' of another row

    with s = (mu, sigma); the mean is over the counted rows that are not extended. No gradient goes through s''.

    Args:
      x: `[rows, H, W, C]`. counted: `[rows]`. extended: bool `[rows]`.
      level: of the equations. mixing: the share and the other row of each row, `[rows]`.
    """
    own = map_style(x)
    weights = jnp.where(extended, 0, counted)
    total = jnp.maximum(jnp.sum(weights), 1)

    def extrapolated(statistic: jax.Array) -> jax.Array:
        centre = jnp.sum(weights[:, None] * statistic, axis=0, keepdims=True) / total
        return jnp.where(extended[:, None], statistic + level * (statistic - centre), statistic)

    styles = jax.lax.stop_gradient(jax.tree.map(extrapolated, own))
    share = mixing.share[:, None]
    mixed = jax.tree.map(lambda one: share * one + (1 - share) * one[mixing.other], styles)
    return restyled(normalised(x, own), mixed)


def shuffled(numbers: jax.Array, counted: jax.Array) -> jax.Array:
    """The permutation of the rows by random numbers in [0, 1) that takes counted rows to counted ones, int32; all are
    `[rows]`."""
    last = jnp.where(counted > 0, 0.0, 2.0)
    drawn, fixed = jnp.argsort(numbers + last), jnp.argsort(last, stable=True)
    return jnp.zeros(len(counted), jnp.int32).at[fixed].set(drawn.astype(jnp.int32))


class Highlighter(nn.Module):
    """Attention over the pixels of a sample's last map, `[C]` channels at each of P pixels:

        q = x W_q + b_q,  k = x W_k + b_k, each of length 1 at every pixel
        a = softmax over pixels j of  mean_i  (q_i + q'_i) / 2 . k_j        q' of another sample of the class
        x -> (x, P a x)                                                     2 C channels

    so that the mean over pixels, `(mean x, sum_j a_j x_j)`, has beside the plain features those of what the class has
    in common. In evaluation q' = q.

    Attributes:
      size: the dimension of q and k.
    """

    size: int = 30

    @nn.compact
    def __call__(self, x: jax.Array, partner: jax.Array | None = None) -> jax.Array:
        """`[batch, H, W, C]` -> `[batch, H, W, 2 C]`; partner: int32 `[batch]`, the row of q'."""
        pixels = x.reshape(len(x), -1, x.shape[-1])
        query, of_key = (unit_length(Dense(self.size, name=name)(pixels)) for name in ("query", "key"))
        asked = query.mean(1)
        asked = asked if partner is None else (asked + asked[partner]) / 2
        scores = jnp.sum(asked[:, None] * of_key, axis=2)
        share = jax.nn.softmax(scores, axis=1) * pixels.shape[1]
        return jnp.concatenate([x, share.reshape(*x.shape[:3], 1).astype(x.dtype) * x], axis=-1)


class StyledHead(nn.Module):
    """A network between whose stages styles are shared and explored, as its objective tells it (`Told`), and before
    whose last pooling a `Highlighter` stands. If nothing is told, all that differs from the network is the attention.

    The network's variables keep their paths; those of the attention are in `highlighter`. It sows the samples' styles
    at the first place, `style_mean` and `style_deviation`, `[batch, C]`.

    Attributes:
      network: the network, with `Passage`s.
      size: the attention's dimension; 0 for no attention.
    """

    network: nn.Module
    size: int = 30

    def setup(self) -> None:
        """Shares the network's scope, so that the wrapper does not appear in paths of variables."""
        nn.share_scope(self, self.network)
        if self.size:
            self.highlighter = Highlighter(self.size)

    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Images -> logits `[rows, classes]`."""
        told = Told(**self.get_variable("styles", "told")) if self.has_variable("styles", "told") else None
        places = count()

        def at_map(x: jax.Array) -> jax.Array:
            return self._passed(x, next(places), told) if x.ndim == 4 else x

        def at_last(x: jax.Array) -> jax.Array:
            attends = self.size and x.ndim == 4
            return self.highlighter(x, told.partner if told else None) if attends else x

        with with_passages({"map": at_map, "last_map": at_last}):
            y: jax.Array = self.network(x, train=train)
        return y

    def _passed(self, x: jax.Array, place: int, told: Told | None) -> jax.Array:
        """The maps after one of the places, of the same type; styles are computed in at least float32."""
        dtype, x = x.dtype, x.astype(at_least_float32(x.dtype))
        if place == 0:
            for name, statistic in map_style(x)._asdict().items():
                self.sow("intermediates", f"style_{name}", statistic)
        if told is None or place >= len(told.explore):
            return x.astype(dtype)
        if place == 0:
            key, batch = jax.random.wrap_key_data(told.bits), len(x)
            x = jnp.where(told.share, shifted(key, x, told.other, told.counted[:batch]), x)[told.origin]
        first = ~jnp.any(told.explore[:place])
        copies = told.origin != jnp.arange(len(told.origin))
        mixing = jax.tree.map(lambda leaf: leaf[place], told.mixing)
        further = explored(x, told.counted, copies & first, told.level, mixing)
        return jnp.where(told.explore[place], further, x).astype(dtype)
