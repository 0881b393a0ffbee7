"""What an experiment is, as typed data, and its form on the command line (a locked `ConfigDict`)."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import ml_collections

from fdgjax.config.presets import PRESETS, dataset_of
from fdgjax.data.loading import DATASETS
from fdgjax.data.protocols import PROTOCOLS, Protocol
from fdgjax.engine import CLIENT_AXES, SEED_AXES
from fdgjax.errors import UserError
from fdgjax.evaluation.linear_probe import LAYERS, Probing
from fdgjax.evaluation.selection import SELECTIONS
from fdgjax.methods import METHODS
from fdgjax.methods.parts.client_models import CLIENT_MODELS
from fdgjax.methods.parts.pseudo_labelled import PseudoLabels
from fdgjax.methods.ssfl import GUESSES
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.registry import lookup


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The federation.

    name: data set. dir: where it lies. cache_dir: where decoded data are kept ('' for the user's cache folder).
    image_size: pixels a side (0 for the data set's own).
    protocol: `leave_one_out`, `every_domain`, `unseen_client` or `labelled_server`, see `fdgjax.data.protocols`.
    target: the unseen domain ('' for the first, or for none where the protocol has none). server: the domain whose
      labelled data the server holds ('' for the first that is not the target, or for none).
    clients: 0 for as many as source domains. domains_per_client: d of hFedF v2, Algorithm 5.
    validation, test: fractions of each client's data held out. shots: target images given to each client for training.
    streaming: the images stay on disk and a round asks the host for each batch, for data larger than the device's
      memory; same samples and views, other speed and memory. A streaming round talks to the host by nature, at every
      step; without streaming all images are on the device and no round waits for the host.
    """

    name: str = "rotated_digits"
    dir: str = ""
    cache_dir: str = ""
    image_size: int = 0
    protocol: str = "leave_one_out"
    target: str = ""
    server: str = ""
    clients: int = 0
    domains_per_client: int = 1
    validation: float = 0.1
    test: float = 0.1
    shots: int = 0
    streaming: bool = False


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The client model.

    name: network. width: factor on its channels. unit: what its replaceable units are ('' for the method's wish, else
    the network's own). head: what comes after it, an entry of `fdgjax.models.HEADS` ('' for the method's wish, else
    nothing). pretrained: a .safetensors file to start from (`fdgjax.models.pretrained`), '' for none.
    """

    name: str = "inception"
    width: float = 1.0
    unit: str = ""
    head: str = ""
    pretrained: str = ""


@dataclasses.dataclass(frozen=True)
class Config:
    """One experiment.

    seed: of everything random: split, initialisation, shuffling, dropout, participation.
    seeds: how many runs, of `seed`, `seed + 1`, ..., are trained side by side in one program.
    seed_axis: `auto`, `vmap` or `map`; same numbers, other speed and memory.
    rounds, local_epochs, batch_size: the protocol; drop_last leaves out a last partial batch.
    clients_per_round: clients drawn for each round; 0 for all.
    client_axis: `auto`, `vmap`, `map` or `chunk` (`chunk` clients at a time); same numbers, other speed and memory.
    devices: the clients of a round are split over so many (on a CPU: so many of its cores).
    eval_every, checkpoint_every: in rounds; the last round always has both.
    selection: which round's accuracies are the result: `last`, `validation` (best on the sources' held-out data) or
      `oracle` (best on the target: an upper bound, never a fair result).
    client_model: what a client is judged by: `received`, what it would start the next round from, or `trained`, where
      clients have models of their own, what they trained last (so FDSE's framework).
    drop_nonfinite: leave a client whose update is not finite out of the round, instead of stopping the run.
    pseudo_labels: how a supervised method gets labels where clients have none.
    probe: how a method that learns without labels is judged.
    model: the client model. method, hyper: name and hyperparameters of the method.
    """

    seed: int = 0
    seeds: int = 1
    seed_axis: str = "auto"
    rounds: int = 200
    local_epochs: int = 2
    batch_size: int = 64
    drop_last: bool = False
    clients_per_round: int = 0
    client_axis: str = "auto"
    chunk: int = 8
    devices: int = 1
    eval_every: int = 5
    eval_batch_size: int = 256
    checkpoint_every: int = 20
    selection: str = "last"
    client_model: str = "received"
    drop_nonfinite: bool = False
    pseudo_labels: PseudoLabels = dataclasses.field(default_factory=PseudoLabels)
    probe: Probing = dataclasses.field(default_factory=Probing)
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    method: str = "fedavg"
    hyper: Any = None


def make_config(
    method: str, preset: str, presets: Mapping[str, Mapping[str, Any]] | None = None
) -> ml_collections.ConfigDict:
    """The locked config of a method on a data set or with a preset, as a config file returns it.

    Args:
      method: name of the method; its hyperparameters become the keys of `config.method`.
      preset: a data set (with its model, image size and target) or an entry of `PRESETS`, which names its data
        set and may set any other key.
      presets: the config file's own values per preset, laid over it; nested dicts, `method` included.

    Raises:
      UserError: unknown method, data set or preset, or a preset for a key that does not exist.
    """
    entry = lookup("method", method, METHODS)
    lookup("data set or preset", preset, {**DATASETS, **PRESETS})
    plain = dataclasses.asdict(Config())
    plain["data"]["name"] = dataset_of(preset)
    del plain["hyper"]
    plain["method"] = {"name": method} | dataclasses.asdict(entry.hyper())
    if entry.server:
        plain["data"]["protocol"] = "labelled_server"
    config = ml_collections.ConfigDict(plain)
    config.lock()
    for layer in (PRESETS.get(preset, {}), (presets or {}).get(preset, {})):
        config.update(layer)
    return config


def read_config(config: ml_collections.ConfigDict) -> Config:
    """The typed experiment of a config file, checked.

    Raises:
      UserError: a value that no experiment can have; says which key, what was got and what was expected.
    """
    return from_plain(config.to_dict())


def from_plain(plain: Mapping[str, Any]) -> Config:
    """The typed experiment of nested plain data, the inverse of `to_plain`; checked.

    Raises:
      UserError: like `read_config`.
    """
    plain = dict(plain)
    hyper = dict(plain.pop("method"))
    method = hyper.pop("name")
    entry = lookup("method", method, METHODS)
    fields = {field.name for field in dataclasses.fields(entry.hyper)}
    if fields != set(hyper):
        raise UserError(
            f"method.name='{method}' but the other method.* keys belong to another method; "
            f"start from --config=configs/{method}.py instead of setting method.name"
        )
    typed = Config(
        **{k: v for k, v in plain.items() if k not in ("data", "model", "pseudo_labels", "probe")},
        probe=Probing(**plain["probe"]),
        pseudo_labels=PseudoLabels(**plain["pseudo_labels"]),
        model=ModelConfig(**plain["model"]),
        data=DataConfig(**plain["data"]),
        method=method,
        hyper=entry.hyper(**hyper),
    )
    check(typed)
    return typed


def check(config: Config) -> None:
    """Raises a `UserError` for a value that no experiment can have."""
    lookup("data.name", config.data.name, DATASETS)
    lookup("model.name", config.model.name, MODELS)
    if config.model.unit:
        lookup("model.unit", config.model.unit, UNITS)
    if config.model.head:
        lookup("model.head", config.model.head, HEADS)
    if not 0 < config.model.width < math.inf:
        raise UserError(
            f"config.model.width got {config.model.width}; expected a factor above 0, such as 0.25 for a quarter of "
            "the channels"
        )
    lookup("client_axis", config.client_axis, CLIENT_AXES)
    lookup("seed_axis", config.seed_axis, SEED_AXES)
    lookup("selection", config.selection, SELECTIONS)
    lookup("client_model", config.client_model, CLIENT_MODELS)
    least = {
        "rounds": 1,
        "local_epochs": 1,
        "batch_size": 1,
        "eval_every": 1,
        "eval_batch_size": 1,
        "checkpoint_every": 1,
        "chunk": 1,
        "devices": 1,
        "clients_per_round": 0,
        "seed": 0,
        "seeds": 1,
        "data.clients": 0,
        "data.image_size": 0,
        "data.shots": 0,
    }
    for key, smallest in least.items():
        section, _, name = key.rpartition(".")
        value = getattr(config.data if section else config, name)
        if value < smallest:
            raise UserError(f"config.{key} got {value}; expected at least {smallest}")
    if config.seed + config.seeds > 2**32:
        raise UserError(
            f"config.seed got {config.seed} with {config.seeds} seeds; expected seeds below 2**32; lower config.seed"
        )
    if not 0 < config.data.validation < 1:
        raise UserError(
            f"config.data.validation got {config.data.validation}; expected a fraction between 0 and 1, such as 0.1"
        )
    check_protocol(config)


def check_protocol(config: Config) -> None:
    """Raises a `UserError` for a value that the protocol has no use for, or cannot use."""
    name, data = config.data.protocol, config.data
    protocol = lookup("data.protocol", name, PROTOCOLS)
    check_probe(config, protocol)
    for key in sorted(frozenset().union(*(other.takes for other in PROTOCOLS.values())) - protocol.takes):
        value, default = getattr(data, key), getattr(DataConfig(), key)
        if value != default:
            users = " or ".join(other for other, entry in PROTOCOLS.items() if key in entry.takes)
            raise UserError(
                f"config.data.{key} got {value!r}, but the protocol '{name}' has no use for it; expected {default!r}, "
                f"or config.data.protocol={users}"
            )
    if "test" in protocol.takes and not (0 < data.test < 1 and data.validation + data.test < 1):
        raise UserError(
            f"config.data.test got {data.test} with config.data.validation={data.validation}; expected two fractions "
            "above 0 that leave something to train on, such as 0.1 and 0.1"
        )
    check_labels(config, protocol)
    if config.selection == "oracle" and not protocol.unseen:
        raise UserError(
            f"config.selection got 'oracle', but the protocol '{name}' has no unseen domain to look at; expected last "
            "or validation"
        )


def check_labels(config: Config, protocol: Protocol) -> None:
    """Raises a `UserError` for what needs labels that the protocol does not have."""
    name, server = config.data.protocol, METHODS[config.method].server
    lookup("pseudo_labels.guess", config.pseudo_labels.guess, GUESSES)
    if config.pseudo_labels.epochs < 1:
        raise UserError(f"config.pseudo_labels.epochs got {config.pseudo_labels.epochs}; expected at least 1")
    if server and not protocol.labelled_server:
        raise UserError(
            f"method '{config.method}' needs a server with labelled data, but the protocol is '{name}'; expected "
            "config.data.protocol=labelled_server"
        )
    if protocol.labelled_server and config.selection == "validation":
        raise UserError(
            f"config.selection got 'validation', but in the protocol '{name}' clients have no labels to validate with; "
            "expected last"
        )


def check_probe(config: Config, protocol: Protocol) -> None:
    """Raises a `UserError` for a probe that nothing can be measured with."""
    probing = config.probe
    lookup("probe.layer", probing.layer, LAYERS)
    for key, value in (("repeats", probing.repeats), ("epochs", probing.epochs), ("batch_size", probing.batch_size)):
        if value < 1:
            raise UserError(f"config.probe.{key} got {value}; expected at least 1")
    _ = probing.percents
    if METHODS[config.method].unlabelled and not protocol.unseen:
        raise UserError(
            f"method '{config.method}' is judged by a probe on an unseen domain, which the protocol "
            f"'{config.data.protocol}' lacks; expected leave_one_out or unseen_client"
        )
    if METHODS[config.method].unlabelled and config.selection != "last":
        raise UserError(
            f"config.selection got '{config.selection}', but method '{config.method}' learns without labels and has "
            "nothing to choose by; expected last"
        )


def seeds_of(config: Config) -> range:
    """The seeds of an experiment."""
    return range(config.seed, config.seed + config.seeds)


def for_seed(config: Config, seed: int) -> Config:
    """The same experiment with one seed alone."""
    return dataclasses.replace(config, seed=seed, seeds=1)


def to_plain(config: Config) -> dict[str, Any]:
    """The config as nested plain data, the method's hyperparameters under `method`, as on the command line."""
    plain = dataclasses.asdict(config)
    plain["method"] = {"name": config.method} | plain.pop("hyper")
    return plain
