"""An experiment as typed data."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from fdgjax.data.augmentations.training import AUGMENTATIONS
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.loading import DATASETS
from fdgjax.engine import CLIENT_AXES, SEED_AXES
from fdgjax.engine.exposure import EXPOSURES
from fdgjax.engine.privacy.noise import WHERE
from fdgjax.engine.robustness.attacks import ATTACKS
from fdgjax.engine.robustness.defences import RULES
from fdgjax.evaluation.linear_probe import Probing
from fdgjax.evaluation.selection import SELECTIONS
from fdgjax.loggers import LOGGERS
from fdgjax.methods import METHODS
from fdgjax.methods.parts.client_models import CLIENT_MODELS
from fdgjax.methods.parts.pseudo_labelled import PseudoLabelConfig
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.models.client_model import DTYPES
from fdgjax.models.scaling import SCALINGS
from fdgjax.utils.fields import key


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The federation.

    name: data set. dir: where it lies. cache_dir: where decoded data are kept ('' for the user's cache folder).
    image_size: pixels a side (0 for the data set's own). crop_size: pixels a side of what the network sees, where that
      is less than what is kept: training images are cropped or resized to it, others resized; 0 for `image_size`.
    augmentation: what training images go through, entries of `fdgjax.data.augmentations.training.AUGMENTATIONS` with
      commas between, one after the other, at random for every sample, round and epoch; `none` for nothing. Evaluation
      never augments.
    scaling: how bytes become a network's numbers, an entry of `fdgjax.models.scaling.SCALINGS`; '' for what the
      pretrained weights expect, else `signed`. A config that is read has the entry itself.
    protocol: `leave_one_out`, `every_domain`, `unseen_client` or `labelled_server`, see `fdgjax.data.protocols`.
    target: the unseen domain ('' for the first, or for none where the protocol has none). server: the domain whose
      labelled data the server holds ('' for the first that is not the target, or for none).
    clients: number of clients; 0 for the number of source domains. domains_per_client: d of hFedF v2, Algorithm 5.
    homogeneity: lambda of Bai et al., 2024, from 0 (clients of one domain each, or of few) to 1 (the same mixture of
      domains at every client); -1 for hFedF's split, by `domains_per_client`.
    label_skew: alpha of the Dirichlet distribution of each client's labels within a domain (Hsu et al., 2019); small is
      skewed, 0 is none.
    same_images: all domains show the same images, turned by each angle, as in UAP; else each domain has images of its
      own. For `rotated_digits` and `rotated_mnist`.
    validation, test: fractions of each client's data held out. shots: target images given to each client for training.
    streaming: the images stay on disk and a round requests each batch from the host, for data larger than the device's
      memory; same samples and views, different speed and memory. A streaming round waits for the host at every step;
      without streaming all images are on the device and no round waits for the host.
    """

    name: str = key("rotated_digits", names=DATASETS)
    dir: str = ""
    cache_dir: str = ""
    image_size: int = key(0, least=0, most=4096)
    crop_size: int = key(0, least=0, most=4096)
    augmentation: str = key("none", names=AUGMENTATIONS, several=True)
    scaling: str = key("", names=SCALINGS, optional=True)
    protocol: str = key("leave_one_out", names=PROTOCOLS)
    target: str = ""
    server: str = ""
    clients: int = key(0, least=0)
    domains_per_client: int = 1
    homogeneity: float = -1.0
    label_skew: float = 0.0
    same_images: bool = False
    validation: float = key(0.1, between=(0, 1), words="a fraction between 0 and 1, such as 0.1")
    test: float = 0.1
    shots: int = key(0, least=0)
    streaming: bool = False


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The client model.

    name: network. width: factor on its channels. unit: kind of its replaceable units ('' for the method's choice, else
    the network's own). head: what follows it, an entry of `fdgjax.models.HEADS` ('' for the method's choice, else
    nothing). pretrained: a .safetensors file to start from (`fdgjax.models.pretrained.convert`), or the name of weights
    that
      are fetched (`fdgjax.models.pretrained.hosted_weights`: timm/resnet18.tv_in1k) or in a package, '' for none.
    frozen: how many of its first stages are never trained and never sent (`fdgjax.models.frozen`), 0 for none, -1 for
      all: the last layer alone is trained. keep_features: what the frozen stages make of an image is computed once and
      kept, where no random view comes before them; False computes it in each step.
    """

    name: str = key("inception", names=MODELS)
    width: float = key(
        1.0, most=64, between=(0, math.inf), words="a factor above 0, such as 0.25 for a quarter of the channels"
    )
    unit: str = key("", names=UNITS, optional=True)
    head: str = key("", names=HEADS, optional=True)
    pretrained: str = ""
    frozen: int = key(0, least=-1)
    keep_features: bool = True


@dataclasses.dataclass(frozen=True)
class DefenceConfig:
    """What stands between the clients' updates and the method's rule (`fdgjax.engine.robustness.defences`).

    clip: the largest norm of an update: `none`, `median` for that of the round's updates, or a number.
    rule: the robust rule whose result takes the place of every update, `none` for the method's own rule alone; for
    methods that average updates. hostile: the clients that the rule is to withstand.
    mixing: whether the rule is given updates mixed with their nearest neighbours (NNM).
    radius: of `centered_clipping`, 0 for the median of the distances from the centre.
    steps: of `geometric_median` and `centered_clipping`, 0 for 8 and 3.
    """

    clip: str = "none"
    rule: str = key("none", names=RULES)
    hostile: int = key(1, least=0)
    radius: float = key(0.0, least=0, most=10**9)
    steps: int = key(0, least=0, most=1000)
    mixing: bool = False


@dataclasses.dataclass(frozen=True)
class AttackConfig:
    """Hostile clients, for experiments (`fdgjax.engine.robustness.attacks`).

    kind: what they do. strength: how much, see the table of attacks in docs/robustness.md.
    clients: how many attack, the first ones. ids: those that do, numbers with commas between, in their place.
    from_round: the first round of the attack.
    """

    kind: str = key("none", names=ATTACKS)
    clients: int = key(1, least=1, most=100_000)
    ids: str = ""
    strength: float = key(1.0, between=(-math.inf, math.inf), words="a finite number; config.attack.kind=nan sends NaN")
    from_round: int = key(1, least=1)


@dataclasses.dataclass(frozen=True)
class PrivacyConfig:
    """Differential privacy, see docs/privacy.md.

    unit: who is protected, a `client` (all its data) or a `sample` of a client; '' for nobody.
    clip: the largest norm of a client's update, or of a sample's gradient; what is longer is scaled down to it.
    noise: the noise multiplier, the standard deviation of the Gaussian noise on a sum over `clip`; 0 where `epsilon` is
      given.
    epsilon: what all `rounds` together may cost; the noise follows from it. 0 where `noise` is given.
    delta: of (epsilon, delta); well below one over the number of those who are protected.
    where: who adds the noise that protects clients, the `server` to the sum, or the `clients`, each a share of it.
    """

    unit: str = key("", names=EXPOSURES, optional=True)
    clip: float = 1.0
    noise: float = 0.0
    epsilon: float = 0.0
    delta: float = 1e-5
    where: str = key("server", names=WHERE)


@dataclasses.dataclass(frozen=True)
class Config:
    """One experiment.

    seed: of everything random: split, initialisation, shuffling, dropout, participation.
    seeds: number of runs, with `seed`, `seed + 1`, ..., that are trained side by side in one program.
    seed_axis: `auto`, `vmap` or `map`; same results, different speed and memory.
    rounds: of communication. local_epochs: passes of a client over its samples in a round. batch_size: samples of a
      minibatch. drop_last: leave a last, partial minibatch out.
    clients_per_round: participants that each round selects; 0 for all clients.
    client_axis: `auto`, `vmap`, `map` or `chunk`; same results, different speed and memory.
    chunk: clients at a time where `client_axis` is `chunk`.
    unroll: minibatches written out at a time in the compiled round, where `client_axis` is `vmap` or `chunk`; larger
      programs, fewer turns. One client at a time (`map`) takes its own number of steps, and nothing is written out.
    dtype: in which the network is computed, `float32` or `bfloat16`. Variables, statistics, gradients, optimisers,
      losses, what is sent and aggregated, and checkpoints are float32 in any case, and so are frozen stages.
    devices: number of devices (on a CPU: of its cores) that the clients of a round are split over; 0, or the word
      `auto`, for the fewest on which they take as few turns as on all. A run keeps the number it began with.
    eval_every: rounds between evaluations; the last round always has one. eval_batch_size: samples at a time in them.
    checkpoint_every: rounds between checkpoints; the last round always has one.
    selection: which round's accuracies are the result: `last`, `validation` (best on the sources' held-out data, mean
      over clients), `validation_by_size` (the same, all clients' samples pooled) or `oracle` (best on the target: an
      upper bound, never a fair result).
    writers: where each round's numbers go besides `metrics.jsonl`, words with commas between; empty for nowhere.
    client_model: which model of a client is evaluated: `received`, from which it would start the next round, or
      `trained`, the one it just trained, where clients have models of their own (as in FDSE's framework).
    drop_nonfinite: leave a client whose update is not finite out of the round, instead of stopping the run; a defence
      always does.
    defence: what is done about hostile clients. attack: hostile clients, for experiments.
    pseudo_labels: how a supervised method gets labels where clients have none.
    probe: how a method that learns without labels is evaluated.
    privacy: what others may learn of a client or of a sample.
    model: the client model. method: its `name` and its hyperparameters.
    """

    seed: int = key(0, least=0)
    seeds: int = key(1, least=1)
    seed_axis: str = key("auto", names=SEED_AXES)
    rounds: int = key(200, least=1)
    local_epochs: int = key(2, least=1)
    batch_size: int = key(64, least=1)
    drop_last: bool = False
    clients_per_round: int = key(0, least=0)
    client_axis: str = key("auto", names=CLIENT_AXES)
    chunk: int = key(8, least=1)
    unroll: int = key(1, least=1)
    dtype: str = key("float32", names=DTYPES)
    devices: int = key(0, least=0, most=256)
    eval_every: int = key(5, least=1)
    eval_batch_size: int = key(256, least=1)
    checkpoint_every: int = key(20, least=1)
    selection: str = key("last", names=SELECTIONS)
    writers: str = key("tensorboard", names=LOGGERS, several=True)
    client_model: str = key("received", names=CLIENT_MODELS)
    drop_nonfinite: bool = False
    defence: DefenceConfig = DefenceConfig()
    attack: AttackConfig = AttackConfig()
    pseudo_labels: PseudoLabelConfig = dataclasses.field(default_factory=PseudoLabelConfig)
    probe: Probing = dataclasses.field(default_factory=Probing)
    privacy: PrivacyConfig = PrivacyConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    method: Any = dataclasses.field(default_factory=lambda: METHODS["fedavg"].hyper(name="fedavg"))


def seeds_of(config: Config) -> range:
    """The seeds of an experiment."""
    return range(config.seed, config.seed + config.seeds)


def for_seed(config: Config, seed: int) -> Config:
    """The same experiment with one seed alone."""
    return dataclasses.replace(config, seed=seed, seeds=1)


def to_plain(config: Config) -> dict[str, Any]:
    """The config as nested plain data, with the keys of the command line."""
    return dataclasses.asdict(config)


TOLD = ("writers",)
"""Keys that say who is told of a run and do not change the experiment."""

PLACES = ("dir", "cache_dir")
"""Keys of `data` that locate files and do not change the experiment."""


def experiment_identity(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a plain config that identifies the experiment."""
    own = {key: value for key, value in plain.items() if key not in TOLD}
    return {**own, "data": {key: value for key, value in plain["data"].items() if key not in PLACES}}
