"""FedSimSiam: SimSiam at each client, averaged; each client keeps its predictor.

Its official head, three layers that end in BatchNorm and a predictor of 512 units, is `config.model.head=simsiam`.

Chen and He, "Exploring simple Siamese representation learning", CVPR 2021.
Hyperparameters: FedGaLA, appendix D; FedSimSiam is one of its baselines.
"""

import dataclasses

from fdgjax.methods.fedsimclr import PUBLISHED, BySGD, fedsimclr
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import PREDICTOR
from fdgjax.methods.parts.setting_presets import UNLABELLED


@dataclasses.dataclass(frozen=True)
class FedSimSiam(BySGD):
    """`BySGD` with SimSiam's loss, which needs a predictor, and its own learning rate."""

    part: str = hyper("simsiam", search=("simsiam",), source="Chen and He, 2021")
    client_learning_rate: float = hyper(0.025, above=0, search=(0.03, 0.025, 0.003), source=PUBLISHED)


ENTRY = Entry(
    "fedsimsiam",
    FedSimSiam,
    fedsimclr,
    "no labels: SimSiam at each client, averaged",
    title="FedSimSiam",
    head="prediction",
    unlabelled=True,
    pooled=lambda h: h.pooled,
    presets=UNLABELLED,
    needs=(PREDICTOR,),
)
