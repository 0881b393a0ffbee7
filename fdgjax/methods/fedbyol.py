"""FedBYOL: BYOL at each client, averaged; each client keeps its target and its predictor.

Grill et al., "Bootstrap your own latent: a new approach to self-supervised learning", NeurIPS 2020.
Hyperparameters: FedGaLA, appendix D; FedBYOL is one of its baselines.
"""

import dataclasses

from fdgjax.methods.fedsimclr import BySGD, fedsimclr
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import PREDICTOR
from fdgjax.methods.parts.setting_presets import UNLABELLED


@dataclasses.dataclass(frozen=True)
class FedBYOL(BySGD):
    """`BySGD` with BYOL's loss, which needs a target and a predictor."""

    part: str = hyper("byol", search=("byol",), source="Grill et al., 2020")


ENTRY = Entry(
    "fedbyol",
    FedBYOL,
    fedsimclr,
    "no labels: BYOL at each client, averaged",
    title="FedBYOL",
    head="prediction",
    unlabelled=True,
    pooled=lambda h: h.pooled,
    presets=UNLABELLED,
    needs=(PREDICTOR,),
)
