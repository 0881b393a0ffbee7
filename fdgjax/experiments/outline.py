"""An experiment without its data: what restores a trained state and predicts with it.

A run's folder describes its data by names and shapes alone (`DataDescription`); its models need nothing else of them.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.config import Config, resolved, seeds_of
from fdgjax.contract import Execution, Method, Model, Setup
from fdgjax.data.columns import Column, layout_of
from fdgjax.data.encoding import Encoding, from_plain, to_plain
from fdgjax.data.federation import TABLES, Federation, Rows
from fdgjax.data.numeric_labels import LabelScale
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.domains import Domains
from fdgjax.engine import State, compile_init
from fdgjax.experiments.components import (
    batching_of,
    execution_of,
    make_method,
    on_callers_mesh,
)
from fdgjax.experiments.experiment import Experiment
from fdgjax.experiments.facts import client_names
from fdgjax.experiments.model import fit_model, keeps_features, model_config
from fdgjax.methods import METHODS
from fdgjax.models.frozen import Trunk, check_content, trunk_content
from fdgjax.models.pretrained.convert import read_weights


class DataDescription(NamedTuple):
    """What a trained run's models need to know of its data.

    class_names: in the order of the labels. domain_names: the data set's. target: the unseen domain; '' for none.
    sample_shape: that of one stored sample, `(H, W, channels)` of images. images: whether samples are images.
    columns: of a table. encodings: how stored values become inputs, of each seed. label_scales: how numeric labels are
      standardised, of each seed; `(None,)` for classes.
    clients: number of clients that hold data.
    samples: the shape of all inputs of the trained model, `(samples, ...)`: images, or features of frozen stages.
    tables: the shape of each table of positions by its name, `(rows, longest)`, as one seed is trained.
    content: what tells the data from others (`content_digest`), in a run's folder; '' in those of before that entry.
    trunk: the same of frozen stages from a file (`Trunk.content`).
    client_names: the names of the clients, in the order of their numbers, as far as they have some.
    """

    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]
    target: str
    sample_shape: tuple[int, ...]
    clients: int
    samples: tuple[int, ...]
    tables: Mapping[str, tuple[int, ...]]
    images: bool = True
    columns: tuple[Column, ...] = ()
    encodings: Sequence[Encoding | None] = (None,)
    label_scales: Sequence[LabelScale | None] = (None,)
    content: str = ""
    trunk: str = ""
    client_names: tuple[str, ...] = ()

    @property
    def numeric(self) -> bool:
        """Whether labels are numbers."""
        return self.label_scales[0] is not None


class Outline(NamedTuple):
    """An experiment without its data; fields of the same name are those of an `Experiment`.

    data: the description of its data. init: as an experiment's, but with the shapes of its arguments only.
    """

    config: Config
    data: DataDescription
    execution: Execution
    whole: Model
    trunk: Trunk | None
    method: Method
    init: partial[State]


def describe(experiment: Experiment, member: slice = slice(None)) -> DataDescription:
    """The description of an experiment's data, or of those of a member of a family, given by the slice of its seeds."""
    data, train = experiment.data, experiment.train

    def shape(name: str) -> tuple[int, ...]:
        rows = getattr(train, name)
        if len(experiment.seeds[member]) == len(experiment.seeds):
            return tuple(rows.places.shape[-2:])
        # Tables of a family are padded to the longest row of all members.
        return (rows.length.shape[-1], max(1, int(rows.length[member].max())))

    return DataDescription(
        class_names=tuple(data.class_names),
        domain_names=tuple(data.domain_names),
        target=experiment.split_specs[member][0].target,
        sample_shape=tuple(data.inputs.shape[1:]),
        clients=len(experiment.parts[0].train),
        samples=tuple(train.inputs.shape),
        tables={name: shape(name) for name in TABLES},
        images=data.images,
        columns=data.columns,
        encodings=experiment.encodings[member],
        label_scales=experiment.label_scales[member],
        trunk=trunk_content(experiment.trunk),
        client_names=tuple(client_names(data, experiment.parts[member])),
    )


def to_description(plain: Mapping[str, Any]) -> DataDescription:
    """The inverse of `from_description`."""
    columns = tuple(Column(name, tuple(categories)) for name, categories in plain.get("columns", ()))
    layout = layout_of(columns)
    return DataDescription(
        class_names=tuple(plain["class_names"]),
        domain_names=tuple(plain["domain_names"]),
        target=plain["target"],
        sample_shape=tuple(plain["sample_shape"] if "sample_shape" in plain else plain["image_shape"]),
        clients=plain["clients"],
        samples=tuple(plain["samples"]),
        tables={name: tuple(shape) for name, shape in plain["tables"].items()},
        images=plain.get("images", True),
        columns=columns,
        encodings=[None if one is None else from_plain(one, layout) for one in plain.get("encodings", (None,))],
        label_scales=[one and LabelScale(*map(np.float32, one)) for one in plain.get("label_scales", (None,))],
        content=plain.get("content", ""),
        trunk=plain.get("trunk", ""),
        client_names=tuple(plain.get("client_names", ())),
    )


def from_description(data: DataDescription) -> dict[str, Any]:
    """The description as plain data, for JSON."""
    plain = data._asdict() | {"encodings": [None if one is None else to_plain(one) for one in data.encodings]}
    scales = plain.pop("label_scales")
    return plain | ({"label_scales": [tuple(map(float, one)) for one in scales]} if data.numeric else {})


def outline_of(experiment: Experiment) -> Outline:
    """The outline of an experiment."""
    return Outline(
        experiment.config,
        describe(experiment),
        experiment.execution,
        experiment.whole,
        experiment.trunk,
        experiment.method,
        experiment.init,
    )


def make_outline(config: Config, data: DataDescription) -> Outline:
    """The outline of a config's experiment; reads no data, and pretrained weights only if they are frozen.

    Raises:
      UserError: missing or other weights of frozen stages, or another version's config that does not fit together.
    """
    config, mesh = on_callers_mesh(resolved(config))
    entry, protocol = METHODS[config.method.name], PROTOCOLS[config.data.protocol]
    chosen = model_config(config.model, entry)
    weights = read_weights(chosen.pretrained, chosen.name, chosen.unit) if chosen.pretrained and chosen.frozen else None
    stored, encoding = np.uint8 if data.images else np.float32, data.encodings[0]
    inputs, none = np.zeros((0, *data.sample_shape), stored), np.zeros(0, np.int32)
    labels = none.astype(np.float32) if data.numeric else none
    nothing = Domains(inputs, labels, none, data.domain_names, data.class_names, data.columns)
    _, client = fit_model(config, entry, nothing, encoding, weights, data.clients, len(data.domain_names))
    check_content(client.trunk, data.trunk, config.model.pretrained)
    batching = batching_of(config)
    features = keeps_features(config, entry, client.trunk, batching, encoding)
    execution = execution_of(config, mesh)
    setup = Setup(
        client.rest if features else client.whole, data.clients, config.rounds, execution, len(data.domain_names)
    )
    method = make_method(config, entry, protocol, setup, batching)
    seeds = np.array(seeds_of(config), np.uint32)
    federation = federation_shapes(data, len(seeds), np.float32 if features else stored)
    init = partial(compile_init(method, execution), seeds if len(seeds) > 1 else seeds[0], federation)
    return Outline(config, data, execution, client.whole, client.trunk, method, init)


def federation_shapes(data: DataDescription, seeds: int, dtype: type[np.generic]) -> Federation:
    """The shapes of the federation of all seeds that is trained on; `dtype`: that of its inputs."""
    axis = (seeds,) if seeds > 1 else ()

    def numbers(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.int32)

    count = data.samples[0]
    tables = {
        name: Rows(numbers(*axis, rows, longest), numbers(*axis, rows)) for name, (rows, longest) in data.tables.items()
    }
    inputs: Any = jax.ShapeDtypeStruct(data.samples, dtype)
    encoding = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*axis, *leaf.shape), leaf.dtype), data.encodings[0])
    clients = numbers(data.tables["train"][0])
    labels: Any = jax.ShapeDtypeStruct((count,), np.float32) if data.numeric else numbers(count)
    scale: Any = LabelScale(*[jax.ShapeDtypeStruct(axis, np.float32)] * 2) if data.numeric else None
    return Federation(inputs, labels, numbers(count), clients, **tables, encoding=encoding, label_scale=scale)
