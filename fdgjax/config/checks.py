"""Checks of a config; an invalid value is refused in one line.

The values that a single key may have are declared beside its field (`fdgjax.config.schema`); checks that involve
several keys are here.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict

from fdgjax.aggregation.robust import ROBUST
from fdgjax.config.data_keys import DataConfig
from fdgjax.config.privacy import check_privacy
from fdgjax.config.robustness import check_attack_acts, defence_of
from fdgjax.config.schema import AttackConfig, Config
from fdgjax.data.augmentations.training import AUGMENTATIONS
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.layouts import LAYOUTS
from fdgjax.data.sources.loading import SAME_IMAGES, TABLE_DATA
from fdgjax.engine.robustness.attacks import ATTACKS, hostile_ids
from fdgjax.evaluation.probability_figures import names_in
from fdgjax.evaluation.selection import HELD_OUT, ORACLE, SELECTIONS
from fdgjax.methods.parts.adaptations import ADAPTATIONS
from fdgjax.methods.parts.hyper import check_values
from fdgjax.methods.parts.pseudo_labelled import PseudoLabelConfig
from fdgjax.utils.errors import UserError
from fdgjax.utils.fields import check_keys
from fdgjax.utils.words import words_of


def check_config(config: Config) -> None:
    """Raises a `UserError` for an invalid value."""
    check_keys(config)
    check_values(config.method)
    if config.unroll > 1 and config.client_axis == "map":
        raise UserError(
            f"config.unroll got {config.unroll}, but with client_axis=map the number of steps is the client's own, "
            "which no compiler knows; expected 1, or config.client_axis=vmap"
        )
    if config.seed + config.seeds > 2**32:
        raise UserError(
            f"config.seed got {config.seed} with {config.seeds} seeds; expected seeds below 2**32; lower config.seed"
        )
    if config.privacy.unit and config.data.standardise:
        raise UserError(
            f"config.data.standardise got True with config.privacy.unit={config.privacy.unit}, but the sums of columns "
            "that it needs are exact, and no noise covers them; expected False; scale the columns beforehand"
        )
    check_copies(config)
    check_figures(config)
    defence_of(config.defence)
    hostile_ids(config.attack.clients, config.attack.ids)
    check_unused(config)
    check_attack_acts(config)
    _ = config.probe.percents
    check_privacy(config)
    check_protocol(config)


class Readers(NamedTuple):
    """Keys that are read by some values of another one alone.

    keys: of the config, without `config.`. key: the other. reads: whether its value here is one of those. values: which
    they are; empty for all but the one here.
    """

    keys: Sequence[str]
    key: str
    reads: bool
    values: Iterable[str] = ()


OF_TABLES = ("data.label", "data.categorical", "data.ignored", "data.missing")
"""The keys that say what a table's columns are."""


def takers(entries: Mapping[str, Any]) -> dict[str, list[str]]:
    """By each key that some entries of a registry take (`takes`), their names."""
    keys = sorted(frozenset().union(*(entry.takes for entry in entries.values())))
    return {key: [name for name, entry in entries.items() if key in entry.takes] for key in keys}


def readers(config: Config) -> list[Readers]:
    """What is read by some values of another key alone."""
    data, rule, adaptation = config.data, config.defence.rule, config.adaptation.kind
    attack = [f"attack.{one.name}" for one in dataclasses.fields(AttackConfig)]
    graded = [name for name, kind in ATTACKS.items() if name != "none" and kind.graded]
    guessing = [f"pseudo_labels.{one.name}" for one in dataclasses.fields(PseudoLabelConfig)]
    grouped = [*TABLE_DATA, *LAYOUTS]
    unlabelled = [name for name, protocol in PROTOCOLS.items() if protocol.labelled_server]
    chosen = (
        ("data.protocol", data.protocol, PROTOCOLS),
        ("defence.rule", rule, ROBUST),
        ("adaptation.kind", adaptation, ADAPTATIONS),
    )
    return [
        Readers(attack, "attack.kind", config.attack.kind != "none"),
        Readers(["attack.clients"], "attack.ids", not config.attack.ids),
        Readers(["attack.strength"], "attack.kind", config.attack.kind in graded, graded),
        Readers(["defence.hostile"], "defence.rule", rule != "none"),
        Readers(["chunk"], "client_axis", config.client_axis == "chunk", ["chunk"]),
        Readers(["data.same_images"], "data.name", data.name in SAME_IMAGES, SAME_IMAGES),
        Readers(OF_TABLES, "data.name", data.name in TABLE_DATA, TABLE_DATA),
        Readers(["data.group", "data.split", "data.owner"], "data.name", data.name in grouped, grouped),
        Readers(["data.domains_per_client"], "data.homogeneity", data.homogeneity < 0, ["-1"]),
        Readers(["adaptation.scope", "adaptation.batch_size"], "adaptation.kind", adaptation != "none"),
        Readers(guessing, "data.protocol", data.protocol in unlabelled, unlabelled),
        Readers(["figures_resamples", "figures_threshold"], "figures", bool(names_in(config.figures))),
        *(
            Readers([f"{other.partition('.')[0]}.{key}"], other, value in names, names)
            for other, value, entries in chosen
            for key, names in takers(entries).items()
        ),
    ]


def check_copies(config: Config) -> None:
    """Raises a `UserError` for augmented copies of which no features can be kept."""
    if config.model.frozen_copies and not config.model.frozen:
        raise UserError(
            f"config.model.frozen_copies got {config.model.frozen_copies}, but nothing is frozen whose features could "
            "be kept; expected 0, or config.model.frozen=-1 or the number of frozen stages"
        )
    users = [name for name in words_of(config.data.augmentation) if name not in AUGMENTATIONS.own]
    if config.model.frozen_copies and users:
        raise UserError(
            f"config.model.frozen_copies got {config.model.frozen_copies}, but the augmentation '{users[0]}' is one of "
            "your own, whose code may change while the features of its copies are kept; expected 0"
        )


class Unused(NamedTuple):
    """A key that is set and that nothing reads: its value, its default, and why nothing reads it, with the ways out."""

    key: str
    value: Any
    default: Any
    why: str
    ways: str


def unused(config: Config) -> Iterator[Unused]:
    """The keys that are set and that nothing reads."""
    own, default = (flatten_dict(dataclasses.asdict(one), sep=".") for one in (config, Config(method=config.method)))
    for keys, other, reads, values in readers(config):
        ways = f"config.{other}={' or '.join(values)}" if values else f"another config.{other}"
        for key in () if reads else keys:
            if own[key] != default[key]:
                yield Unused(key, own[key], default[key], f"config.{other}={own[other]} does not use it", ways)


def check_unused(config: Config) -> None:
    """Raises a `UserError` for a key that nothing reads."""
    for key, value, default, why, ways in unused(config):
        raise UserError(f"config.{key} got {value!r}, but {why}; expected {default!r}, or {ways}")


def check_figures(config: Config) -> None:
    """Raises a `UserError` for a selection by a figure that is not computed, or a sensitivity without figures or with a
    threshold."""
    rule, _, figure = config.selection.partition(":")
    if figure and figure not in names_in(config.figures):
        raise UserError(
            f"config.selection got '{config.selection}', but config.figures is '{config.figures}'; expected {figure} "
            f"among them, or config.selection={rule}"
        )
    if config.figures_sensitivity and not names_in(config.figures):
        raise UserError(
            f"config.figures_sensitivity got {config.figures_sensitivity}, but config.figures is empty, so that there "
            "is no threshold; expected 0, or config.figures=sensitivity,specificity"
        )
    if config.figures_sensitivity and config.figures_threshold:
        raise UserError(
            f"config.figures_sensitivity got {config.figures_sensitivity} and config.figures_threshold "
            f"{config.figures_threshold}; expected one of them to be 0, as either gives the threshold"
        )


def check_protocol(config: Config) -> None:
    """Raises a `UserError` for a value that the protocol cannot use."""
    name, data = config.data.protocol, config.data
    protocol = PROTOCOLS[name]
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
    if config.selection == ORACLE and not protocol.unseen:
        raise UserError(
            f"config.selection got 'oracle', but the protocol '{name}' has no unseen domain; expected last "
            "or validation"
        )


def check_heterogeneity(data: DataConfig) -> None:
    """Raises a `UserError` for invalid settings of the clients' heterogeneity."""
    if not (data.homogeneity == -1 or 0 <= data.homogeneity <= 1):
        raise UserError(
            f"config.data.homogeneity got {data.homogeneity}; expected a number from 0 (few domains a client) to 1 "
            "(all clients alike), or -1 for hFedF's split"
        )
    if not 0 <= data.label_skew < math.inf:
        raise UserError(
            f"config.data.label_skew got {data.label_skew}; expected a number above 0, such as 0.5, or 0 for none"
        )
