"""The config of an experiment, as typed data."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from fdgjax.config.data_keys import DataConfig
from fdgjax.data.numeric_labels import TASKS
from fdgjax.data.sources.split_lists import lists_within
from fdgjax.engine import CLIENT_AXES, SEED_AXES
from fdgjax.engine.exposure import EXPOSURES
from fdgjax.engine.privacy.noise import WHERE
from fdgjax.engine.robustness.attacks import ATTACKS
from fdgjax.engine.robustness.defences import RULES
from fdgjax.evaluation.linear_probe import Probing
from fdgjax.evaluation.probability_figures import FIGURES
from fdgjax.evaluation.selection import SELECTIONS
from fdgjax.loggers import LOGGERS
from fdgjax.methods import METHODS
from fdgjax.methods.parts.adaptations import AdaptationConfig
from fdgjax.methods.parts.evaluated_models import CLIENT_MODELS
from fdgjax.methods.parts.pseudo_labelled import PseudoLabelConfig
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.models.client_model import DTYPES
from fdgjax.utils.fields import key


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The client model.

    name: network. width: factor on its numbers of channels. unit: kind of its replaceable units ('' for the method's
      choice, or the network's own if the method makes none). head: what follows the network, an entry of
      `fdgjax.models.HEADS` ('' for the method's choice, or nothing if the method makes none).
    hidden: features of each hidden layer, comma-separated, such as `128,64`, of a network that has some (`mlp`);
      '' for its own. dropout: the rate of dropout of a network that has some; -1 for its own.
    pretrained: a .safetensors file to start from (`fdgjax.models.pretrained.convert`), or the name of weights that are
      downloaded (`fdgjax.models.pretrained.hosted_weights`: timm/resnet18.tv_in1k) or in a package, '' for none.
    frozen: how many of its first stages are never trained and never sent (`fdgjax.models.frozen`), 0 for none, -1 for
      all: only the last layer is trained. keep_features: whether the frozen stages' output for each image is computed
      once and kept, unless a random augmentation precedes them; False computes it in each step.
    frozen_copies: with `data.augmentation`, the number of augmented copies of each image whose output from the frozen
      stages is computed once and kept; each step draws one copy for each sample. 0 augments anew and computes the
      frozen stages in each step.
    unbiased_variance: whether BatchNorm's running variance is the unbiased one, as in PyTorch, instead of the biased
      one, as in Flax. masked_statistics: whether BatchNorm's statistics of a last partial batch are those of its
      samples alone, as in PyTorch, instead of a whole batch that its samples fill up by repetition.
    frozen_statistics: whether BatchNorm normalises by the statistics of `pretrained` in training, too, which then never
      change; its scale and bias are trained. DomainBed's ResNets do so (`freeze_bn`); in federated learning Zhong et
      al. (2023, "Making batch normalization great in federated deep learning") do from half of the rounds on.
    """

    name: str = key("inception", names=MODELS)
    width: float = key(
        1.0, most=64, between=(0, math.inf), words="a factor above 0, such as 0.25 for a quarter of the channels"
    )
    unit: str = key("", names=UNITS, optional=True)
    head: str = key("", names=HEADS, optional=True)
    hidden: str = ""
    dropout: float = key(
        -1.0,
        between=(math.nextafter(0, -1), 1),
        also=(-1,),
        words="a rate from 0 to below 1, or -1 for the network's own",
    )
    pretrained: str = ""
    frozen: int = key(0, least=-1)
    keep_features: bool = True
    frozen_copies: int = key(0, least=0, most=1000)
    unbiased_variance: bool = False
    masked_statistics: bool = False
    frozen_statistics: bool = False


@dataclasses.dataclass(frozen=True)
class DefenceConfig:
    """A defence, applied to the clients' updates before the method's aggregation (`fdgjax.engine.robustness.defences`).

    clip: the norm to which updates are clipped: `none`, `median` for the median norm of the round's updates, those of
    norm 0 left out, or a number.
    rule: the robust rule whose result replaces every update, `none` for the method's own rule alone; for methods that
    average updates. hostile: the number of hostile clients that the rule has to withstand.
    mixing: whether the updates are mixed with their nearest neighbours (NNM) before the rule is applied.
    radius: the radius of `centered_clipping`, 0 for the median of the distances from the centre.
    steps: the iterations of `geometric_median` and `centered_clipping`, 0 for 8 and 3.
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

    kind: the attack. strength: its strength, see the table of attacks in docs/robustness.md.
    clients: how many clients attack; these are the first ones. ids: comma-separated ids of the clients that attack, to
    choose them instead of the first ones.
    from_round: the first round of the attack.
    """

    kind: str = key("none", names=ATTACKS)
    clients: int = key(1, least=1, most=100_000)
    ids: str = ""
    strength: float = key(
        1.0, least=0, between=(-math.inf, math.inf), words="a finite number; config.attack.kind=nan sends NaN"
    )
    from_round: int = key(1, least=1)


@dataclasses.dataclass(frozen=True)
class PrivacyConfig:
    """Differential privacy, see docs/privacy.md.

    unit: who is protected, a `client` (all its data) or a `sample` of a client; '' for nobody.
    clip: the norm to which a client's update, or a sample's gradient, is clipped.
    noise: the noise multiplier: the standard deviation of the Gaussian noise on a sum, divided by `clip`; 0 if
      `epsilon` is given.
    epsilon: the privacy budget of all `rounds` together, from which the noise follows; 0 if `noise` is given.
    delta: of (epsilon, delta); well below one over the number of protected clients or samples.
    where: who adds the noise that protects clients: the `server`, to the sum, or the `clients`, each a share of it.
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

    task: what is predicted: a class (`classification`), or a number (`regression`), for which a network has one output,
      trained by squared error on labels standardised by those of the clients, see docs/protocols.md.
    seed: the seed of everything random: split (unless `data.split_seed` is given), initialisation, shuffling, dropout,
      participation.
    seeds: number of runs, with `seed`, `seed + 1`, ..., that are trained side by side in one program.
    seed_axis: `auto`, `vmap` or `map`; same results, different speed and memory.
    rounds: number of communication rounds. local_epochs: passes of a client over its samples in a round.
    batch_size: samples of a minibatch. drop_last: whether a last, partial minibatch is left out.
    clients_per_round: participants that each round selects; 0 for all clients.
    client_axis: `auto`, `vmap`, `map` or `chunk`; same results, different speed and memory.
    chunk: clients at a time if `client_axis` is `chunk`.
    unroll: minibatches per iteration of the compiled training loop, if `client_axis` is `vmap` or `chunk`; more make
      the program larger and its loop shorter. With `map`, each client takes its own number of steps and the loop is not
      unrolled.
    dtype: number type in which the network (on a CPU: its products) is computed, `float32` or `bfloat16`. Variables,
      statistics, gradients, optimisers, losses, messages, aggregates and checkpoints are always float32, and so are
      frozen stages.
    devices: number of devices (on a CPU: of its cores) that the clients of a round are split over; 0, or the word
      `auto`, for the number on which a round is expected to end first. A run keeps the number it began with.
    eval_every: rounds between evaluations; the last round is always evaluated. eval_batch_size: samples at a time in
      an evaluation.
    figures: further figures of the models' class probabilities, comma-separated: per client, per domain, on the worst
      and on the unseen domain, see docs/protocols.md; empty for none. Each evaluation then takes about twice as long.
    figures_threshold: with two classes, the probability from which `figures` decide for the second one; 0 to take it
      from the clients' validation data. figures_sensitivity: the sensitivity on the clients' validation data for which
      the threshold is chosen; 0 for the threshold that maximises sensitivity + specificity (Youden's index).
    figures_resamples: bootstrap resamples for the intervals of `figures` on domains of up to 1,000 samples (or groups);
      0 for no intervals.
    checkpoint_every: rounds between checkpoints; the last round always has one.
    selection: which round's accuracies are the result: `last`, `validation` (best on the sources' held-out data, mean
      over clients), `validation_by_size` (the same, all clients' samples pooled), either with `:FIGURE` by one of
      `figures` instead of the accuracy, or `oracle` (best on the target: an upper bound, never a fair result).
    writers: loggers that get each round's numbers besides `metrics.jsonl`, comma-separated; empty for none.
    client_model: which model of a client is evaluated: `received`, from which it would start the next round, or, for
      methods with one model per client, `trained`, the one it just trained (as in FDSE's framework).
    drop_nonfinite: whether a client whose update is not finite is left out of the round, instead of stopping the run; a
      defence always leaves it out.
    defence: the defence against hostile clients. attack: hostile clients, for experiments.
    pseudo_labels: how a supervised method gets labels if the clients have none.
    adaptation: how a model is adapted to the unseen domain before it is tested there once more.
    probe: how a method that learns without labels is evaluated.
    privacy: differential privacy of clients or samples.
    model: the client model. method: the method's `name` and hyperparameters.
    """

    task: str = key("classification", names=TASKS)
    seed: int = key(0, least=0)
    seeds: int = key(1, least=1)
    seed_axis: str = key("auto", names=SEED_AXES)
    rounds: int = key(200, least=1, most=10**7)
    local_epochs: int = key(2, least=1, most=10**4)
    batch_size: int = key(64, least=1, most=10**7)
    drop_last: bool = False
    clients_per_round: int = key(0, least=0)
    client_axis: str = key("auto", names=CLIENT_AXES)
    chunk: int = key(8, least=1)
    unroll: int = key(1, least=1)
    dtype: str = key("float32", names=DTYPES)
    devices: int = key(0, least=0, most=256)
    eval_every: int = key(5, least=1)
    eval_batch_size: int = key(256, least=1, most=10**7)
    figures: str = key("", names=FIGURES, several=True)
    figures_threshold: float = key(0.0, between=(0, 1), also=(0.0,), words="a number between 0 and 1, or 0")
    figures_sensitivity: float = key(0.0, least=0, most=1)
    figures_resamples: int = key(1000, least=0, most=10_000)
    checkpoint_every: int = key(20, least=1)
    selection: str = key("last", names=SELECTIONS)
    writers: str = key("tensorboard", names=LOGGERS, several=True)
    client_model: str = key("received", names=CLIENT_MODELS)
    drop_nonfinite: bool = False
    defence: DefenceConfig = DefenceConfig()
    attack: AttackConfig = AttackConfig()
    pseudo_labels: PseudoLabelConfig = dataclasses.field(default_factory=PseudoLabelConfig)
    adaptation: AdaptationConfig = dataclasses.field(default_factory=AdaptationConfig)
    probe: Probing = dataclasses.field(default_factory=Probing)
    privacy: PrivacyConfig = PrivacyConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    method: Any = dataclasses.field(default_factory=lambda: METHODS["fedavg"].hyper(name="fedavg"))


def seeds_of(config: Config) -> range:
    """The seeds of an experiment, `seed` to `seed + seeds - 1`."""
    return range(config.seed, config.seed + config.seeds)


def split_seed_of(config: Config, seed: int) -> int:
    """The seed of the split of the experiment's run with `seed`."""
    return seed if config.data.split_seed < 0 else config.data.split_seed


def for_seed(config: Config, seed: int) -> Config:
    """The same experiment with one seed alone."""
    return dataclasses.replace(config, seed=seed, seeds=1)


def to_plain(config: Config) -> dict[str, Any]:
    """The config as nested plain data, with the keys of the command line."""
    return dataclasses.asdict(config)


INCIDENTAL = frozenset(
    {
        *("seed", "seeds", "seed_axis", "client_axis", "chunk", "unroll", "devices"),
        *("eval_batch_size", "checkpoint_every", "figures", "figures_threshold", "figures_resamples"),
        *("writers", "data.dir", "data.cache_dir"),
    }
)
"""Keys that no protocol prescribes: the seeds, where and how a run is computed, and what is measured and logged."""

LOGGING_KEYS = ("writers",)
"""Keys that choose where a run's numbers are logged and do not change the experiment."""

PLACES = ("dir", "cache_dir")
"""Keys of `data` that locate files and do not change the experiment."""


def experiment_identity(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a plain config that identifies the experiment."""
    own = {key: value for key, value in plain.items() if key not in LOGGING_KEYS}
    data = {key: value for key, value in plain["data"].items() if key not in PLACES}
    inside = lists_within(data["name"], data.get("split", ""), plain["data"]["dir"])
    return {**own, "data": data if inside is None else {**data, "split": str(inside)}}
