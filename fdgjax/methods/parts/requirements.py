"""What a method needs of its model and of the federation, checked when an experiment is built (`Entry.needs`), and what
it needs to know of its model."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax

from fdgjax.contract import Model, Output
from fdgjax.data.augmentations.view import IMAGE_AXES
from fdgjax.models.depth import depth_order
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten, norm_paths


class Given(NamedTuple):
    """What a method is given.

    hyper: its hyperparameters. model: the trained model, without frozen stages. sample: the shape of one of its inputs.
    clients: number of training clients. participants: how many of them a round selects. domains: how many domains the
    samples of a training client come from, at most; on pooled data, all training samples. inputs: the shape of a sample
    of the data, which differs from `sample` where stages are frozen; () if it is not known. numeric: whether labels are
    numbers instead of classes.
    """

    hyper: Any
    model: Model
    sample: tuple[int, ...]
    clients: int
    participants: int
    domains: int
    inputs: tuple[int, ...] = ()
    numeric: bool = False

    def paths(self) -> Iterable[str]:
        """The paths of the model's variables."""
        return flatten(self.model.shapes())


class Need(NamedTuple):
    """A part that a method is made for: without it, the method is another one, or does not work.

    lack: what it was given instead, in words. met: whether the part is there. remedy: what to give it, in words.
    unit, head: entries of `fdgjax.models.UNITS` and `HEADS` that have the part, used if the network lacks it and
      `config.model.unit`, or `head`, is empty; '' for none.
    """

    lack: str
    met: Callable[[Given], bool]
    remedy: str
    unit: str = ""
    head: str = ""


def check_needs(name: str, needs: Iterable[Need], given: Given) -> None:
    """Raises a `UserError` for the first need of the method `name` that is not met; computes shapes only."""
    for need in needs:
        if not need.met(given):
            raise UserError(f"method '{name}' got {need.lack}; expected {need.remedy}")


def has_path(end: str) -> Callable[[Given], bool]:
    """Whether the model has a variable whose path ends so."""
    return lambda given: any(path.endswith(end) for path in given.paths())


BATCH_NORM = Need(
    "a model without BatchNorm in its trained part, with which it is FedAvg",
    lambda given: bool(norm_paths(given.model.shapes())),
    "config.model.unit=norm, or a network with BatchNorm after its frozen stages, such as resnet10",
    unit="norm",
)
SKEW_ERASERS = Need(
    "a model without DSE blocks", has_path("/bn_dfe/scale"), "some: leave config.model.unit empty, or set dse"
)
FEATURE_AUGMENTATION = Need(
    "a model without feature augmentation",
    has_path("mean_variance"),
    "convolutional units: leave config.model.unit empty, or set augmented, and take a network other than vit_b8",
)
ASSEMBLED_NORM = Need(
    "a model without assembled norms",
    has_path("/score_bn"),
    "some over images: leave config.model.unit empty, or set assembled",
)
RANDOM_REPRESENTATION = Need(
    "a model without a random representation",
    has_path("/gaussian/reference_mean"),
    "a Gaussian head: leave config.model.head empty, or set gaussian",
)
STYLES = Need(
    "a model without styles of maps in its trained part",
    lambda given: "style_mean" in (output_shapes(given.model, given.sample).extra or {}),
    "convolutions between whose stages styles are shared: leave config.model.head empty, or set highlighted or styled, "
    "freeze fewer stages, and take a network other than vit_b8",
)
ADAPTER = Need(
    "a model without an adapter before its last layer",
    has_path("/adapter/outer/kernel"),
    "one: leave config.model.head empty, or set adapter; a module of one's own needs the last_step, or the "
    'Passage("features") before its last layer, of fdgjax.models.stages',
)
FEATURES = Need(
    "a model without features",
    lambda given: output_shapes(given.model, given.sample).features.shape[-1] > 0,
    'one that sows its last layer\'s input: self.sow("intermediates", "features", x)',
)
PREDICTOR = Need(
    "a model without a predictor, which BYOL and SimSiam train",
    lambda given: (
        given.hyper.part not in ("byol", "simsiam") or "prediction" in output_shapes(given.model, given.sample).extra
    ),
    "one: leave config.model.head empty, or set prediction",
    head="prediction",
)
IMAGES = Need(
    "samples that are no images",
    # Of frozen stages' features the shape says nothing; what looks at pixels refuses them itself (`check_images`).
    lambda given: not given.inputs or len(given.inputs) == IMAGE_AXES - 1,
    "images, or a method that looks at its model's inputs alone, such as fedavg",
)
CLASSES = Need(
    "labels that are numbers, and it uses classes",
    lambda given: not given.numeric,
    "config.task=classification, or a method that uses nothing of labels but their loss, such as fedavg",
)
SEVERAL_CLIENTS = Need(
    "a single client, with which nothing of what it does between clients is left",
    lambda given: given.clients > 1,
    "at least two: a larger config.data.clients, or data of more domains",
)
SEVERAL_PARTICIPANTS = Need(
    "a single client in each round, whose update it can compare with no other",
    lambda given: given.participants > 1,
    "at least two: a larger config.data.clients or config.clients_per_round",
)
SEVERAL_DOMAINS = Need(
    "training samples of a single domain at each place of training, with which nothing of what it compares is left",
    lambda given: given.domains > 1,
    "several domains: more training domains on pooled data, config.data.domains_per_client=2 or "
    "config.data.homogeneity=0.5 at clients",
)


def output_shapes(model: Model, image_shape: tuple[int, ...]) -> Output:
    """Shapes of a model's outputs for one image."""
    variables = model.shapes()
    image = jax.ShapeDtypeStruct((1, *image_shape), "float32")
    output: Output = jax.eval_shape(model.evaluate, variables, image)
    return output


def last_layer(model: Model) -> str:
    """The path of the last layer's kernel, `[m, classes]`."""
    return f"params/{depth_order(model.init)[-1]}/kernel"


def projection_size(model: Model) -> int:
    """The dimension of a model's projections: the outputs of its projector, or of its last layer if it has no
    projector."""
    shapes = flatten(model.shapes())
    out = "params/projector/out/kernel"
    return int(shapes[out if out in shapes else last_layer(model)].shape[-1])
