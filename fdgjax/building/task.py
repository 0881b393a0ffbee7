"""What an experiment is about, before a method is built: its data for each seed, the client model, the devices."""

from collections.abc import Sequence
from typing import NamedTuple

from fdgjax.building.pieces import (
    as_features,
    batching_of,
    check_method,
    choose_devices,
    client_model,
    execution_of,
    keeps_features,
    model_config,
    on_callers_mesh,
    sharing,
)
from fdgjax.config import Config, DataConfig, ModelConfig, resolved, seeds_of
from fdgjax.contract import Setup
from fdgjax.data.domains import Domains
from fdgjax.data.federation import Federation, Partition, federate_seeds
from fdgjax.data.loading import load
from fdgjax.data.protocols import PROTOCOLS, Protocol, Sharing
from fdgjax.engine.local import Batching
from fdgjax.engine.placing import several_processes
from fdgjax.methods import METHODS, Entry
from fdgjax.models.client_model import ClientModel
from fdgjax.models.pretrained import read_weights


class Task(NamedTuple):
    """What an experiment is about.

    config: with everything that was open chosen. entry, protocol: of its method and its split.
    seeds: of all runs; sharings, parts: each one's split of the data.
    model: the client model with the method's choices; client: what it is made of. features: whether what its frozen
      stages make of an image is computed once, and stands in the image's place.
    setup: what the method is built for. batching: of local training.
    """

    config: Config
    entry: Entry
    protocol: Protocol
    seeds: Sequence[int]
    data: Domains
    sharings: Sequence[Sharing]
    parts: list[Partition]
    model: ModelConfig
    client: ClientModel
    features: bool
    setup: Setup
    batching: Batching


def make_task(config: Config, others: Sequence[Config]) -> Task:
    """The task of a config, or of a family's first config and the others; raises like `fdgjax.building.build`."""
    config, mesh = on_callers_mesh(resolved(config))
    entry, protocol = METHODS[config.method.name], PROTOCOLS[config.data.protocol]
    check_method(config, entry, protocol)
    model = model_config(config.model, entry)
    weights = read_weights(model.pretrained, model.name, model.unit) if model.pretrained else None
    data = load_data(config.data)
    seeds = [seed for member in (config, *others) for seed in seeds_of(member)]
    sharings = [sharing(config, protocol, data.domain_names, seed) for seed in seeds]
    parts = [protocol.split(data, how) for how in sharings]
    clients = len(parts[0].train)
    config = choose_devices(config, entry, clients, data.images.nbytes)
    client = client_model(model, data, config.data, weights, config.dtype)
    features = keeps_features(config, entry, client.trunk)
    return Task(
        config=config,
        entry=entry,
        protocol=protocol,
        seeds=seeds,
        data=data,
        sharings=sharings,
        parts=parts,
        model=model,
        client=client,
        features=features,
        setup=Setup(
            client.rest if features else client.whole,
            clients,
            config.rounds,
            execution_of(config, mesh),
            domains=len(data.domain_names),
        ),
        batching=batching_of(config),
    )


def load_data(where: DataConfig) -> Domains:
    """The data set of a config."""
    return load(
        where.name,
        data_dir=where.dir,
        image_size=where.image_size,
        cache_dir=where.cache_dir,
        same_images=where.same_images,
    )


def make_federations(task: Task) -> list[Federation]:
    """Each seed's federation, of images or of the features of frozen stages."""
    config, trunk = task.config, task.client.trunk
    return federate_seeds(
        as_features(task.data, trunk, task.model, config.data) if trunk and task.features else task.data,
        task.parts,
        batch_size=config.batch_size,
        drop_last=config.drop_last,
        streaming=config.data.streaming or several_processes(),
    )
