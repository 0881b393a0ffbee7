"""Stages: a network as a sequence of named steps, so that its first ones can be frozen.

A network's `__call__` makes its steps, functions of one array, and runs those that its attribute `part` selects. Its
module's `STAGES` names all steps but the last, which maps features to logits. Variables have the same paths in a part
as in the whole network.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from fdgjax.utils.errors import UserError


class StageRange(NamedTuple):
    """The steps from `begin` up to but not including `end`; None includes the last step."""

    begin: int = 0
    end: int | None = None


ALL_STAGES = StageRange()


def through(steps: Sequence[Callable[[jax.Array], jax.Array]], part: StageRange, x: jax.Array) -> jax.Array:
    """Applies the steps of a part to `x`."""
    for step in steps[part.begin : part.end]:
        x = step(x)
    return x


class Passage(nn.Module):
    """The identity: a place in a network where a head may change what passes (`with_passages`). No variables.

    Attributes:
      place: `map`, between a network's stages of convolutions; `last_map`, before its features are pooled or
        flattened; or `features`, before its last layer.
    """

    place: str

    def __call__(self, x: jax.Array) -> jax.Array:
        """`[batch, ...]`, unchanged."""
        return x


def with_passages(changes: Mapping[str, Callable[[jax.Array], jax.Array]]) -> AbstractContextManager[None]:
    """All networks that are called within are changed at these places."""

    def intercept(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        passed = call(*args, **kwargs)
        if isinstance(context.module, Passage) and context.method_name == "__call__":
            return changes.get(context.module.place, lambda x: x)(passed)
        return passed

    return nn.intercept_methods(intercept)


def flattened(x: jax.Array) -> jax.Array:
    """The last map `[batch, H, W, C]` as vectors."""
    x = Passage("last_map")(x)
    return x.reshape(len(x), -1)


def last_step(network: nn.Module, layer: nn.Module) -> Callable[[jax.Array], jax.Array]:
    """The last step of a network: its input, the features, is sown; the layer maps it to logits."""

    def step(x: jax.Array) -> jax.Array:
        x = Passage("features")(x)
        network.sow("intermediates", "features", x)
        logits: jax.Array = layer(x)
        return logits

    return step


def check_image_size(network: str, pools: str, images: jax.Array, smallest: int, published: int = 224) -> None:
    """Raises a `UserError` for images of which a network's pools would leave no pixel."""
    height, width = images.shape[1:3]
    if min(height, width) < smallest:
        raise UserError(
            f"{network} got images of {height} x {width} pixels, too small for its {pools}; expected at least "
            f"{smallest} x {smallest}: set data.image_size (published: {published})"
        )
