"""The client model of an experiment: its network as config and method choose it, and the features that are kept of its
frozen stages."""

import contextlib
import dataclasses
import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import numpy as np

from fdgjax.config import Config, DataConfig, ModelConfig
from fdgjax.data.augmentations.training import IMAGE_AUGMENTATIONS
from fdgjax.data.augmentations.view import IMAGE_AXES
from fdgjax.data.columns import column_statistics, layout_of, merged
from fdgjax.data.encoding import Encoding, standardising, unstandardised
from fdgjax.data.federation import Partition
from fdgjax.data.numeric_labels import LabelScale, label_scale
from fdgjax.data.sources.domains import Domains
from fdgjax.engine.local import Batching
from fdgjax.experiments.components import of_a_round
from fdgjax.methods import Entry
from fdgjax.methods.parts.requirements import IMAGES, Given, check_needs, output_shapes
from fdgjax.models import MODELS
from fdgjax.models.client_model import ClientModel, make_client_model, make_network
from fdgjax.models.cost import cost
from fdgjax.models.frozen import Copies, Trunk, say_in_steps, say_random, trunk_features
from fdgjax.models.pretrained.convert import WeightFile, in_files, note_scaling
from fdgjax.nn import BatchStatistics
from fdgjax.utils.errors import UserError
from fdgjax.utils.words import words_of

MOST_HIDDEN = 100_000
"""The most features of a hidden layer: more only fill memory."""


def model_config(model: ModelConfig, entry: Entry) -> ModelConfig:
    """The client model's config, with the method's units and head if the config names none."""
    return dataclasses.replace(model, unit=model.unit or entry.unit, head=model.head or entry.head)


def network_settings(chosen: ModelConfig) -> dict[str, Any]:
    """The attributes of the network that the config sets besides `width` and `unit`.

    Raises:
      UserError: `hidden` is not a list of whole numbers, or has another number of layers than the stages to freeze.
    """
    words = words_of(chosen.hidden)
    if not all(word.isdecimal() and 0 < int(word) <= MOST_HIDDEN for word in words):
        raise UserError(
            f"config.model.hidden got '{chosen.hidden}'; expected the features of each hidden layer, from 1 to "
            f"{MOST_HIDDEN:,}, such as 128,64"
        )
    if words and chosen.frozen:
        raise UserError(
            f"config.model.hidden got '{chosen.hidden}' with config.model.frozen={chosen.frozen}; expected the "
            "network's own hidden layers where some are frozen"
        )
    return {
        **({"hidden": tuple(map(int, words))} if words else {}),
        **({"dropout": chosen.dropout} if chosen.dropout >= 0 else {}),
    }


def encoding_of(data: Domains, split: Partition, where: DataConfig) -> Encoding | None:
    """How a split's stored values become inputs, from the statistics that each client, and a server that trains, makes
    of its own training samples; None for images, and for arrays that are inputs as they are.

    Raises:
      UserError: images, whose bytes are not standardised.
    """
    if data.images and where.standardise:
        raise UserError(
            "config.data.standardise got True, but the data are images, whose scaling is config.data.scaling; expected "
            "False"
        )
    layout = layout_of(data.columns)
    if where.standardise:
        own = [rows for rows in (*split.train, split.server) if len(rows)]
        return standardising(merged([column_statistics(data.inputs[rows], layout) for rows in own]), layout)
    return unsplit_encoding(data)


def label_scale_of(data: Domains, split: Partition) -> LabelScale | None:
    """How numeric labels are standardised, from the statistics that each client makes of its own training samples; None
    for classes."""
    return label_scale(data.labels, split.train) if data.numeric else None


def unsplit_encoding(data: Domains) -> Encoding | None:
    """An encoding of a data set that looks at no sample; its inputs have the shape of those of any split."""
    return unstandardised(layout_of(data.columns)) if data.columns else None


def network_input(data: Domains, where: DataConfig, encoding: Encoding | None) -> tuple[int, ...]:
    """The shape of the network's input: `(H, W, channels)` of images, that of an encoded sample of other data.

    Raises:
      UserError: a crop larger than the images, or a key of images with other data.
    """
    if not data.images:
        check_no_images(data, where)
        shape = data.inputs.shape[1:]
        return tuple(shape) if encoding is None else encoding.input_shape(shape)
    height, width, channels = data.inputs.shape[1:]
    if where.crop_size > min(height, width):
        raise UserError(
            f"config.data.crop_size got {where.crop_size}, but the images have {height}x{width} pixels; expected at "
            "most that, or a larger config.data.image_size"
        )
    return (where.crop_size or height, where.crop_size or width, channels)


def check_no_images(data: Domains, where: DataConfig) -> None:
    """Raises a `UserError` for a key that only images have."""
    for key, value, plain in (("crop_size", where.crop_size, 0), ("scaling", where.scaling, "signed")):
        if value != plain:
            raise UserError(
                f"config.data.{key} got {value!r}, but the samples {list(data.inputs.shape[1:])} are no images; "
                f"expected {plain!r}"
            )


def check_colours(config: Config, entry: Entry, data: Domains, encoding: Encoding | None) -> None:
    """Raises a `UserError` where colours would be changed of samples with the axes of images that are no pixels: their
    numbers would be cut off at -1 and 1."""
    shape = data.inputs.shape[1:]
    chosen = [name for name in words_of(config.data.augmentation) if name in IMAGE_AUGMENTATIONS]
    coloured = [name for name in chosen if IMAGE_AUGMENTATIONS[name].colours]
    if data.images or len(shape) != 3 or not (coloured or entry.unlabelled or IMAGES in entry.needs):
        return
    if encoding is not None or np.abs(data.inputs).max(initial=0) > 1:
        what = f"config.data.augmentation={coloured[0]}" if coloured else f"method '{entry.name}'"
        raise UserError(
            f"{what} changes the colours of images, which are bytes (uint8) or numbers in [-1, 1], and got samples "
            f"{list(shape)} with other numbers; expected such images, or fedavg with data.augmentation=flip or none"
        )


def network_of(chosen: ModelConfig, data: Domains) -> partial[nn.Module]:
    """What makes the config's network for a data set; see `make_network`.

    Raises:
      UserError: samples without the axes of images, for a network of this package that is made for images.
    """
    shape = list(data.inputs.shape[1:])
    if len(shape) != IMAGE_AXES - 1 and chosen.name in MODELS.own and not MODELS[chosen.name].sample:
        raise UserError(
            f"the model '{chosen.name}' got samples of shape {shape}; expected images [H, W, channels]; set "
            "config.model.name=mlp or linear for rows of a table, conv1d for series [time, channels], or give a module "
            "of your own"
        )
    return partial(
        make_network,
        chosen.name,
        len(data.class_names),
        width=chosen.width,
        unit=chosen.unit,
        head=chosen.head,
        settings=network_settings(chosen),
    )


def step_flops(config: Config, chosen: ModelConfig, data: Domains) -> float:
    """Floating-point operations of one training step of the whole network, frozen stages included: two for each
    multiply-add, three times those of a forward pass; infinite for a network none of whose layers is counted. Does not
    start JAX."""
    shape = network_input(data, config.data, unsplit_encoding(data))
    return 6.0 * config.batch_size * cost(network_of(chosen, data)(), shape).flops or math.inf


def client_model(
    chosen: ModelConfig,
    data: Domains,
    encoding: Encoding | None,
    where: DataConfig,
    weights: WeightFile | None,
    dtype: str,
) -> ClientModel:
    """The client model for a data set; see `make_client_model`."""
    if weights:
        note_scaling(weights, where.scaling)
    elif chosen.frozen:
        say_random(chosen.name)
    if chosen.frozen_statistics and not chosen.pretrained:
        say_no_statistics(chosen.name)
    return make_client_model(
        network_of(chosen, data),
        chosen.name,
        network_input(data, where, encoding),
        frozen=chosen.frozen,
        scaling=where.scaling,
        weights=weights,
        dtype=dtype,
        statistics=BatchStatistics(
            unbiased=chosen.unbiased_variance,
            masked=chosen.masked_statistics,
            frozen=in_files if chosen.frozen_statistics and chosen.pretrained else None,
        ),
    )


def say_no_statistics(network: str) -> None:
    """Logs that there are no statistics to be frozen: a random network's, 0 and 1, normalise nothing."""
    logging.getLogger("fdgjax").info(
        f"config.model.frozen_statistics changes nothing: config.model.pretrained names no weights of {network}"
    )


def fit_model(
    config: Config,
    entry: Entry,
    data: Domains,
    encoding: Encoding | None,
    weights: WeightFile | None,
    clients: int,
    domains: int,
) -> tuple[ModelConfig, ClientModel]:
    """The client model and its config, checked against what the method needs (`Entry.needs`). If the network lacks a
    part and `config.model` leaves units or head open, it gets those that have the part, and a log line says so.

    Args:
      config, entry: the experiment's config, and its method's entry.
      data: the data set; of its samples only the shape is read, but in `check_colours`. encoding: of its stored values.
      weights: a file's tensors to start from, or None; its network keeps its own units.
      clients: the number of training clients. domains: the largest number of domains at a place of training.

    Raises:
      UserError: a part that the method needs is missing; also raises like `client_model`.
    """
    chosen = model_config(config.model, entry)
    make = partial(client_model, data=data, encoding=encoding, where=config.data, weights=weights, dtype=config.dtype)
    check_colours(config, entry, data, encoding)

    def given(client: ClientModel) -> Given:
        own = network_input(data, config.data, encoding)
        sample = client.trunk.shape if client.trunk else own
        rounds = of_a_round(config, clients)
        return Given(config.method, client.rest, sample, clients, rounds, domains, own, data.numeric)

    client = make(chosen)
    for need in entry.needs:
        open_ = {"unit": not (chosen.unit or weights), "head": not config.model.head}
        parts = {key: getattr(need, key) for key, free in open_.items() if free and getattr(need, key)}
        if parts and not need.met(given(client)):
            replaced = dataclasses.replace(chosen, **parts)
            with contextlib.suppress(UserError):  # a user-defined module without units is refused below
                if need.met(given(made := make(replaced))):
                    chosen, client = replaced, made
                    say_parts(entry.name, chosen, parts)
    check_needs(entry.name, entry.needs, given(client))
    if chosen.head and not entry.unlabelled:
        check_outputs(entry.name, chosen.head, given(client), 1 if data.numeric else len(data.class_names))
    return chosen, client


def check_outputs(method: str, head: str, given: Given, wanted: int) -> None:
    """Raises a `UserError` for a head whose outputs are a projection, while the method learns from labels."""
    outputs = output_shapes(given.model, given.sample).logits.shape[-1]
    if outputs != wanted:
        raise UserError(
            f"config.model.head got '{head}', with which the network has {outputs} outputs and not the {wanted} that "
            f"'{method}' learns from labels; expected '' or a head that keeps them, such as gaussian, or a method "
            "without labels"
        )


def say_parts(method: str, chosen: ModelConfig, parts: Mapping[str, str]) -> None:
    """Logs that the network got units, or a head, that the method needs; parts: their keys of `config.model`."""
    words = {"unit": "units are", "head": "head is"}
    got = " and ".join(f"its {words[key]} model.{key}={name}" for key, name in parts.items())
    logging.getLogger("fdgjax").info(
        f"{method} needs what {chosen.name} lacks, so that {got}; set the same for the methods that it is compared with"
    )


def keeps_features(
    config: Config, entry: Entry, trunk: Trunk | None, batching: Batching, encoding: Encoding | None
) -> bool:
    """Whether the features of frozen stages are computed once and kept; if not, a log line says why."""
    if trunk is None:
        return False
    if encoding is not None:
        say_in_steps(trunk, "its inputs are encoded by each seed's training samples")
        return False
    if entry.unlabelled or entry.pixels(config.method):
        say_in_steps(trunk, f"{entry.name} changes images before the model sees them")
        return False
    if batching.augment and not config.model.frozen_copies:
        changes = f"data.augmentation={config.data.augmentation} changes images before the model sees them"
        say_in_steps(trunk, f"{changes}; model.frozen_copies=8 keeps the features of eight augmented copies instead")
        return False
    if not config.model.keep_features:
        say_in_steps(trunk, "model.keep_features=False")
        return False
    return True


def as_features(data: Domains, trunk: Trunk, chosen: ModelConfig, where: DataConfig, batching: Batching) -> Domains:
    """The data set with each image replaced by the trunk's features of it; those of augmented copies follow."""
    identity: dict[str, object] = {"network": chosen.name, "unit": chosen.unit, "scaling": where.scaling}
    identity |= {"crop_size": where.crop_size} if where.crop_size else {}
    view = batching.augment if batching.copies else None
    copies = Copies(batching.copies, view, where.augmentation) if view else None
    return data._replace(inputs=trunk_features(trunk, data.inputs, identity, where.cache_dir, copies))
