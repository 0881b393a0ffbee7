"""Checks of a config; an invalid value is refused in one line."""

import math
from collections.abc import Mapping
from typing import Any

from fdgjax.config.hostility import defence_of
from fdgjax.config.private import UNITS as PROTECTED
from fdgjax.config.private import check_privacy
from fdgjax.config.schema import Config, DataConfig
from fdgjax.data.loading import DATASETS, SAME_IMAGES
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.engine import CLIENT_AXES, SEED_AXES
from fdgjax.engine.attack import ATTACKS, hostile_ids
from fdgjax.engine.defence import RULES
from fdgjax.engine.privacy import WHERE
from fdgjax.errors import UserError
from fdgjax.evaluation.linear_probe import LAYERS
from fdgjax.evaluation.selection import HELD_OUT, SELECTIONS
from fdgjax.methods.parts.client_models import CLIENT_MODELS
from fdgjax.methods.parts.hyper import check_values
from fdgjax.methods.parts.pseudo_labels import GUESSES
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.models.client_model import DTYPES
from fdgjax.models.scaling import SCALINGS
from fdgjax.registry import lookup
from fdgjax.views.training import AUGMENTATIONS
from fdgjax.writers import WRITERS

NAMES: Mapping[str, Mapping[str, Any]] = {
    "data.name": DATASETS,
    "model.name": MODELS,
    "client_axis": CLIENT_AXES,
    "seed_axis": SEED_AXES,
    "dtype": DTYPES,
    "selection": SELECTIONS,
    "client_model": CLIENT_MODELS,
    "data.protocol": PROTOCOLS,
    "probe.layer": LAYERS,
    "privacy.where": WHERE,
    "pseudo_labels.guess": GUESSES,
    "defence.rule": RULES,
    "attack.kind": ATTACKS,
}
"""Keys that name an entry of a registry."""

OPTIONAL: Mapping[str, Mapping[str, Any]] = {
    "model.unit": UNITS,
    "model.head": HEADS,
    "data.scaling": SCALINGS,
    "privacy.unit": PROTECTED,
}
"""Keys that name an entry of a registry or are empty."""

LISTS: Mapping[str, Mapping[str, Any]] = {"writers": WRITERS, "data.augmentation": AUGMENTATIONS}
"""Keys that name entries of a registry, words with commas between, or are empty."""

LEAST: Mapping[str, int] = {
    "rounds": 1,
    "local_epochs": 1,
    "batch_size": 1,
    "eval_every": 1,
    "eval_batch_size": 1,
    "checkpoint_every": 1,
    "chunk": 1,
    "unroll": 1,
    "devices": 0,
    "clients_per_round": 0,
    "seed": 0,
    "seeds": 1,
    "model.frozen": -1,
    "data.clients": 0,
    "data.image_size": 0,
    "data.crop_size": 0,
    "data.shots": 0,
    "probe.repeats": 1,
    "probe.epochs": 1,
    "probe.batch_size": 1,
    "pseudo_labels.epochs": 1,
    "defence.hostile": 0,
    "defence.radius": 0,
    "defence.steps": 0,
    "attack.clients": 1,
    "attack.from_round": 1,
}
"""The smallest valid value of a key."""

MOST: Mapping[str, int] = {
    "devices": 256,
    "data.image_size": 4096,
    "model.width": 64,
    "defence.radius": 10**9,
    "defence.steps": 1000,
}
"""The largest value of a key that means anything: more only fills memory."""


def check(config: Config) -> None:
    """Raises a `UserError` for an invalid value."""
    for key, entries in NAMES.items():
        lookup(key, value_of(config, key), entries)
    for key, entries in OPTIONAL.items():
        if name := value_of(config, key):
            lookup(key, name, entries)
    for key, entries in LISTS.items():
        for name in filter(None, map(str.strip, value_of(config, key).split(","))):
            lookup(key, name, entries)
    for key, smallest in LEAST.items():
        if value_of(config, key) < smallest:
            raise UserError(f"config.{key} got {value_of(config, key)}; expected at least {smallest}")
    for key, largest in MOST.items():
        if not value_of(config, key) <= largest:
            raise UserError(f"config.{key} got {value_of(config, key)}; expected at most {largest}")
    if config.unroll > 1 and config.client_axis == "map":
        raise UserError(
            f"config.unroll got {config.unroll}, but with client_axis=map the number of steps is the client's own, "
            "which no compiler knows; expected 1, or config.client_axis=vmap"
        )
    if not 0 < config.model.width < math.inf:
        raise UserError(
            f"config.model.width got {config.model.width}; expected a factor above 0, such as 0.25 for a quarter of "
            "the channels"
        )
    if config.seed + config.seeds > 2**32:
        raise UserError(
            f"config.seed got {config.seed} with {config.seeds} seeds; expected seeds below 2**32; lower config.seed"
        )
    if not 0 < config.data.validation < 1:
        raise UserError(
            f"config.data.validation got {config.data.validation}; expected a fraction between 0 and 1, such as 0.1"
        )
    if config.data.same_images and config.data.name not in SAME_IMAGES:
        raise UserError(
            f"config.data.same_images got True, but the domains of '{config.data.name}' have images of their own; "
            f"expected False, or config.data.name={' or '.join(SAME_IMAGES)}"
        )
    if not 0 < config.probe.learning_rate < math.inf:
        raise UserError(f"config.probe.learning_rate got {config.probe.learning_rate}; expected a number above 0")
    defence_of(config.defence)
    hostile_ids(config.attack.clients, config.attack.ids)
    if not math.isfinite(config.attack.strength):
        raise UserError(
            f"config.attack.strength got {config.attack.strength}; expected a finite number; config.attack.kind=nan "
            "sends NaN"
        )
    check_values(config.method)
    _ = config.probe.percents
    check_privacy(config)
    check_protocol(config)


def value_of(config: Config, key: str) -> Any:
    """The value of a key, `data.name` style."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def check_protocol(config: Config) -> None:
    """Raises a `UserError` for a value that the protocol does not use, or cannot use."""
    name, data = config.data.protocol, config.data
    protocol = PROTOCOLS[name]
    for key in sorted(frozenset().union(*(other.takes for other in PROTOCOLS.values())) - protocol.takes):
        value, default = getattr(data, key), getattr(DataConfig(), key)
        if value != default:
            users = " or ".join(other for other, entry in PROTOCOLS.items() if key in entry.takes)
            raise UserError(
                f"config.data.{key} got {value!r}, but the protocol '{name}' does not use it; expected {default!r}, "
                f"or config.data.protocol={users}"
            )
    if "homogeneity" in protocol.takes:
        check_heterogeneity(data)
    if "test" in protocol.takes and not (0 < data.test < 1 and data.validation + data.test < 1):
        raise UserError(
            f"config.data.test got {data.test} with config.data.validation={data.validation}; expected two fractions "
            "above 0 that leave something to train on, such as 0.1 and 0.1"
        )
    if protocol.labelled_server and SELECTIONS[config.selection].looks_at == HELD_OUT:
        raise UserError(
            f"config.selection got '{config.selection}', but in the protocol '{name}' clients have no labels to "
            "validate with; expected last"
        )
    if config.selection == "oracle" and not protocol.unseen:
        raise UserError(
            f"config.selection got 'oracle', but the protocol '{name}' has no unseen domain; expected last "
            "or validation"
        )


def check_heterogeneity(data: DataConfig) -> None:
    """Raises a `UserError` for a heterogeneity of clients that does not exist."""
    if not (data.homogeneity == -1 or 0 <= data.homogeneity <= 1):
        raise UserError(
            f"config.data.homogeneity got {data.homogeneity}; expected a number from 0 (few domains a client) to 1 "
            "(all clients alike), or -1 for hFedF's split"
        )
    if data.homogeneity >= 0 and data.domains_per_client != 1:
        raise UserError(
            f"config.data.domains_per_client got {data.domains_per_client}, which config.data.homogeneity="
            f"{data.homogeneity:g} does not use; expected 1, or config.data.homogeneity=-1"
        )
    if not 0 <= data.label_skew < math.inf:
        raise UserError(
            f"config.data.label_skew got {data.label_skew}; expected a number above 0, such as 0.5, or 0 for none"
        )
