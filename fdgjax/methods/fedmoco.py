"""FedMoCo: MoCo at each client, averaged; each client keeps its target and its queue.

He, Fan, Wu, Xie and Girshick, "Momentum contrast for unsupervised visual representation learning", CVPR 2020.
Hyperparameters: FedGaLA, appendix D, one of whose baselines it is.
"""

import dataclasses

from fdgjax.methods.fedsimclr import BySGD, fedsimclr
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.presets import UNLABELLED


@dataclasses.dataclass(frozen=True)
class FedMoCo(BySGD):
    """`BySGD` with MoCo's loss, and a slower target."""

    part: str = hyper("moco", search=("moco",), source="He et al., 2020")
    decay: float = hyper(0.999, search=(0.99, 0.999), source="FedGaLA, official code")


ENTRY = Entry(
    "fedmoco",
    FedMoCo,
    fedsimclr,
    "no labels: MoCo at each client, averaged",
    head="projection",
    unlabelled=True,
    presets=UNLABELLED,
)
