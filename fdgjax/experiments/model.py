"""The client model of an experiment: its network as config and method choose it, and the features that are kept of its
frozen stages."""

import contextlib
import dataclasses
import logging
from functools import partial

from fdgjax.config import Config, DataConfig, ModelConfig
from fdgjax.data.sources.domains import Domains
from fdgjax.engine.local import Batching
from fdgjax.experiments.components import of_a_round
from fdgjax.methods import Entry
from fdgjax.methods.parts.requirements import Given, check_needs
from fdgjax.models.client_model import ClientModel, make_client_model, make_network
from fdgjax.models.frozen import Copies, Trunk, say_in_steps, say_random, trunk_features
from fdgjax.models.pretrained.convert import WeightFile, note_scaling
from fdgjax.nn import BatchStatistics
from fdgjax.utils.errors import UserError


def model_config(model: ModelConfig, entry: Entry) -> ModelConfig:
    """The client model's config, with the method's units and head if the config names none."""
    return dataclasses.replace(model, unit=model.unit or entry.unit, head=model.head or entry.head)


def network_input(data: Domains, where: DataConfig) -> tuple[int, ...]:
    """The shape `(H, W, channels)` of the network's input.

    Raises:
      UserError: a crop larger than the images.
    """
    height, width, channels = data.inputs.shape[1:]
    if where.crop_size > min(height, width):
        raise UserError(
            f"config.data.crop_size got {where.crop_size}, but the images have {height}x{width} pixels; expected at "
            "most that, or a larger config.data.image_size"
        )
    return (where.crop_size or height, where.crop_size or width, channels)


def client_model(
    chosen: ModelConfig, data: Domains, where: DataConfig, weights: WeightFile | None, dtype: str
) -> ClientModel:
    """The client model for a data set; see `make_client_model`."""
    if weights:
        note_scaling(weights, where.scaling)
    elif chosen.frozen:
        say_random(chosen.name)
    network = partial(
        make_network, chosen.name, len(data.class_names), width=chosen.width, unit=chosen.unit, head=chosen.head
    )
    return make_client_model(
        network,
        chosen.name,
        network_input(data, where),
        frozen=chosen.frozen,
        scaling=where.scaling,
        weights=weights,
        dtype=dtype,
        statistics=BatchStatistics(unbiased=chosen.unbiased_variance, masked=chosen.masked_statistics),
    )


def fit_model(
    config: Config, entry: Entry, data: Domains, weights: WeightFile | None, clients: int, domains: int
) -> tuple[ModelConfig, ClientModel]:
    """The client model and its config, checked against what the method needs (`Entry.needs`). If the network lacks a
    part and `config.model.unit` leaves the units open, it gets units that have the part, and a log line says so.

    Args:
      config, entry: the experiment's config, and its method's entry.
      data: the data set; only its classes and the shape of its images are read.
      weights: a file's tensors to start from, or None; its network keeps its own units.
      clients: the number of training clients. domains: the largest number of domains at a place of training.

    Raises:
      UserError: a part that the method needs is missing; also raises like `client_model`.
    """
    chosen = model_config(config.model, entry)
    make = partial(client_model, data=data, where=config.data, weights=weights, dtype=config.dtype)

    def given(client: ClientModel) -> Given:
        sample = client.trunk.shape if client.trunk else network_input(data, config.data)
        return Given(config.method, client.rest, sample, clients, of_a_round(config, clients), domains)

    client = make(chosen)
    for need in entry.needs:
        if need.unit and not (chosen.unit or weights or need.met(given(client))):
            replaced = dataclasses.replace(chosen, unit=need.unit)
            with contextlib.suppress(UserError):  # a user-defined module without units is refused below
                if need.met(given(made := make(replaced))):
                    chosen, client = replaced, made
                    say_units(entry.name, chosen)
    check_needs(entry.name, entry.needs, given(client))
    return chosen, client


def say_units(method: str, chosen: ModelConfig) -> None:
    """Logs that the network got units that the method needs."""
    logging.getLogger("fdgjax").info(
        f"{method} needs what {chosen.name} lacks, so that its units are model.unit={chosen.unit}; "
        "set the same for the methods that it is compared with"
    )


def keeps_features(config: Config, entry: Entry, trunk: Trunk | None, batching: Batching) -> bool:
    """Whether the features of frozen stages are computed once and kept; if not, a log line says why."""
    if trunk is None:
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
