"""FedMoCo: MoCo at each client, averaged; each client keeps its target and its queue.

FedGaLA's official code also averages the target and the queue (`target=averaged`), and has one linear layer as its head
(`config.model.head=moco`) and 65,536 keys (`queue`).

He, Fan, Wu, Xie and Girshick, "Momentum contrast for unsupervised visual representation learning", CVPR 2020.
Hyperparameters: FedGaLA, appendix D; FedMoCo is one of its baselines.
"""

import dataclasses
from collections.abc import Mapping

from fdgjax.contract import LabelFn, Method, Setup
from fdgjax.methods.fedsimclr import BySGD, all_but_collections, fedsimclr
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.setting_presets import UNLABELLED
from fdgjax.methods.parts.sharing import everything_shared
from fdgjax.utils.registry import lookup

TARGETS: Mapping[str, LabelFn] = {"kept": all_but_collections, "averaged": everything_shared}
"""What happens to a client's target and queue after a round, as labels of the variables."""


@dataclasses.dataclass(frozen=True)
class FedMoCo(BySGD):
    """`BySGD` with MoCo's loss and a slower target.

    target: what happens to a client's target and queue after a round, `kept` or `averaged`.
    """

    part: str = hyper("moco", search=("moco",), source="He et al., 2020")
    decay: float = hyper(0.999, most=1, search=(0.99, 0.999), source="FedGaLA, official code")
    target: str = hyper("kept", search=tuple(TARGETS), source="as FedU's; FedGaLA, official code: averaged")


def fedmoco(setup: Setup, h: FedMoCo) -> Method:
    """Self-supervised clients with MoCo's target and queue.

    Raises:
      UserError: an unknown word in `h`.
    """
    return fedsimclr(setup, h, label=lookup("target", h.target, TARGETS))


ENTRY = Entry(
    "fedmoco",
    FedMoCo,
    fedmoco,
    "no labels: MoCo at each client, averaged",
    title="FedMoCo",
    head="projection",
    unlabelled=True,
    pooled=lambda h: h.pooled,
    presets=UNLABELLED,
)
