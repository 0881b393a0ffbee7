"""FedSimCLR: self-supervised learning at each client, averaged; FedMoCo, FedBYOL and FedSimSiam share its code.

    w_i <- local epochs of a self-supervised loss (`fdgjax.objectives.two_views`) from w;    w <- sum_i p_i w_i

No labels are used. Between rounds each client keeps its optimiser's state, the target that follows its model (BYOL,
MoCo; the first time it takes part, the model that it is sent), MoCo's queue, and the predictor (BYOL, SimSiam: only
encoder and projector are averaged, as in FedU). A linear probe on the unseen domain evaluates the representation.

FedGaLA, section 5 and appendices C and D; the four methods are its baselines.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fdgjax.contract import LabelFn, Method, Objective, Setup, Variables
from fdgjax.data.augmentations.corruption import corrupt
from fdgjax.data.augmentations.simclr import random_flip, random_resized_crop, simclr_view
from fdgjax.data.augmentations.view import View, by_shape, of_images
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, RowExtension, extend
from fdgjax.methods.parts.hyper import When, hyper, momentum_of
from fdgjax.methods.parts.requirements import PREDICTOR, projection_size
from fdgjax.methods.parts.setting_presets import SIMCLR
from fdgjax.objectives.two_views import PARTS, TwoViewSettings, extended, of_model
from fdgjax.utils.registry import lookup

PUBLISHED = "FedGaLA, appendix D"

WITHOUT_IMAGES = "method.augmentation=simclr, which corrupts rows of tables and series"

AUGMENTATIONS: Mapping[str, Callable[[float], View]] = {
    "simclr": lambda smallest: by_shape(partial(simclr_view, smallest=smallest), corrupt),
    "crop": lambda smallest: of_images(
        "method.augmentation=crop", partial(random_resized_crop, smallest=smallest), WITHOUT_IMAGES
    ),
    "flip": lambda smallest: of_images("method.augmentation=flip", random_flip, WITHOUT_IMAGES),
}
"""Random views by name; each is built for the smallest share of an image's area that a view shows. Of rows of tables
and of series `simclr` is SCARF's corruption (`fdgjax.data.augmentations.corruption`)."""


def of_parts(*names: str) -> When:
    """That the loss is one of these."""
    return When(lambda h: h.part in names)


@dataclasses.dataclass(frozen=True)
class FedSimCLR(FedAvg):
    """FedAvg's hyperparameters and those of the loss.

    part: `simclr`, `moco`, `byol` or `simsiam`, an entry of `PARTS`; the last two need a head with a predictor, which
      they get where `config.model.head` is empty.
    temperature: SimCLR's and MoCo's. decay: of the target, per step. queue: length of MoCo's queue of keys.
    augmentation: how views are drawn, an entry of `AUGMENTATIONS`. smallest_crop: smallest share of an image's area
      that a view shows.
    pooled: whether to train on the pooled data: SimCLR, MoCo, BYOL or SimSiam itself, the reference without federation.
    """

    part: str = hyper("simclr", search=tuple(PARTS), source="FedGaLA, Table 5")
    client_learning_rate: float = hyper(1e-4, above=0, search=(1e-3, 1e-4), source=PUBLISHED)
    client_weight_decay: float = hyper(0.0, search=(0.0, 1e-4), source=PUBLISHED)
    unseen: str = hyper(
        "mean", search=("mean", "each"), source="one encoder; of what clients keep only predictors matter"
    )
    keep_optimizer: bool = hyper(True, search=(True, False), source="FedGaLA, official code")
    temperature: float = hyper(
        0.07, above=0, search=(0.07, 0.2, 0.5), source="FedGaLA, official code", when=of_parts("simclr", "moco")
    )
    decay: float = hyper(
        0.99, most=1, search=(0.99, 0.999), source="FedGaLA, official code", when=of_parts("moco", "byol")
    )
    queue: int = hyper(
        4096,
        least=1,
        search=(1024, 4096, 65536),
        source="not stated; official code: 65536",
        when=of_parts("moco"),
    )
    augmentation: str = hyper("simclr", search=tuple(AUGMENTATIONS), source="FedGaLA, appendix D.2")
    smallest_crop: float = hyper(0.08, above=0, most=1, search=(0.08, 0.2), source="torchvision's default")
    pooled: bool = hyper(False, search=(False, True), source="FedGaLA, Table 1")


@dataclasses.dataclass(frozen=True)
class BySGD(FedSimCLR):
    """SGD with learning rate 0.03 and momentum 0.9, for all losses but SimCLR's."""

    client_optimizer: str = hyper("sgd", examples=True, search=("sgd", "adam"), source=PUBLISHED)
    client_learning_rate: float = hyper(0.03, above=0, search=(0.03, 0.003), source=PUBLISHED)
    client_momentum: float = hyper(
        0.9, most=1, search=(0.0, 0.9), source=PUBLISHED, when=momentum_of("client_optimizer")
    )
    client_weight_decay: float = hyper(1e-4, search=(0.0, 1e-4), source=PUBLISHED)


def label_of(path: str) -> str:
    """The labels of variables: the target, the queue and the predictor are local."""
    return "local" if of_predictor(path) else all_but_collections(path)


def all_but_collections(path: str) -> str:
    """The labels of variables where only the target and the queue are local."""
    return "local" if path.startswith(("target/", "queue/")) else "shared"


def of_predictor(path: str) -> bool:
    """Whether the path of a variable, or of a parameter, is in the predictor."""
    return "projector/predictor_" in path


def first_target(base: Method) -> Method:
    """The method whose clients begin with the model that they are sent as their target, in whatever round they take
    part first: the initial one would pull a trained model back."""

    def start(sent: Variables, client: Extended) -> Variables:
        model = base.start(sent, client.base)
        target = jax.tree.map(partial(jnp.where, client.more), model["target"], of_model(model))
        return {**model, "target": target}

    trained = RowExtension(
        begin=lambda fresh: jnp.zeros(len(fresh.federation.ids), bool),
        after=lambda context, trained: jnp.ones_like(context.client.more),
    )
    return extend(base, row=trained)._replace(start=start)


def fedsimclr(
    setup: Setup,
    h: FedSimCLR,
    *,
    label: LabelFn = label_of,
    regularise: Callable[[Objective], Objective] | None = None,
    **parts: Any,
) -> Method:
    """FedAvg on a self-supervised loss.

    Args:
      setup, h: as for every method.
      label: `path -> shared, personal or local`, for each variable.
      regularise: `objective -> objective` with regularisers added.
      parts: further arguments of `fedavg`.

    Raises:
      UserError: an unknown part or augmentation.
    """
    part = lookup("part", h.part, PARTS)
    view = lookup("augmentation", h.augmentation, AUGMENTATIONS)(h.smallest_crop)
    settings = TwoViewSettings(h.temperature, h.decay, h.queue, projection_size(setup.model))
    model = extended(setup.model, part, settings)
    objective = part.objective(setup.model, view, settings)
    base = fedavg(
        setup._replace(model=model),
        h,
        objective=regularise(objective) if regularise else objective,
        label=label,
        **parts,
    )
    if "target" in model.shapes() and label("target/params") == "local":
        base = first_target(base)
    return base._replace(
        predict=lambda server, client: of_model(base.predict(server, client)),
        unseen=lambda server, clients: of_model(base.unseen(server, clients)),
        trained=of_model if base.trained else None,
        pooled=h.pooled,
    )


ENTRY = Entry(
    "fedsimclr",
    FedSimCLR,
    fedsimclr,
    "no labels: SimCLR at each client, averaged",
    title="FedSimCLR",
    head="projection",
    unlabelled=True,
    pooled=lambda h: h.pooled,
    presets=SIMCLR,
    needs=(PREDICTOR,),
)
