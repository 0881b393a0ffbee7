"""The networks of the registry as tests of what holds for all of them take them: small samples, few layers."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fdgjax.models import MODELS, Backbone, DenseNet, ViT

SMALLEST: Mapping[str, int] = {"alexnet": 63, "alexnet_unpadded": 159, "vgg11": 32, "densenet121": 29}
"""Side of the smallest images, where 16 pixels are too few."""

TWO_BLOCKS = ("patches", "block_1", "block_2")
FEWER: Mapping[str, Mapping[str, Any]] = {
    "vit_b8": {"module": partial(ViT, depth=2), "stages": TWO_BLOCKS},
    "densenet121": {"module": partial(DenseNet, depths=(2, 2, 2, 2))},
    "deit_b": {"module": partial(ViT, patch=16, depth=2), "stages": TWO_BLOCKS},
}
"""The same network with fewer layers of the same kinds, where tracing the whole takes seconds."""


def sample(name: str, side: int = 16) -> tuple[int, ...]:
    """The shape of a small sample of what a network takes, images of `side` pixels unless it needs larger ones."""
    side = SMALLEST.get(name, side)
    return MODELS[name].sample or (side, side, 3)


def shallow(name: str) -> Backbone:
    """An entry of `MODELS`, or the same network with fewer layers."""
    return MODELS[name]._replace(**FEWER.get(name, {}))
