"""The defence and the attack that a config requests."""

import dataclasses
from typing import Any

from fdgjax.aggregation.robust import RobustSettings
from fdgjax.config.schema import AttackConfig, Config, DefenceConfig
from fdgjax.engine.robustness.attacks import ATTACKS, Attack, hostile_ids
from fdgjax.engine.robustness.defences import RULES, Defence, bound_of
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


def defence_of(chosen: DefenceConfig) -> Defence | None:
    """The defence; None if the config requests none.

    Raises:
      UserError: an unknown clip or rule, or mixing without a rule.
    """
    bound, rule = bound_of(chosen.clip), lookup("defence.rule", chosen.rule, RULES)
    if chosen.mixing and not rule:
        raise UserError(
            "config.defence.mixing got True without a rule to be given the mixed updates; expected a robust rule, for "
            "example config.defence.rule=trimmed_mean"
        )
    settings = RobustSettings(chosen.hostile, chosen.radius, chosen.steps)
    return Defence(bound, rule, settings, chosen.mixing) if bound or rule else None


def attack_of(chosen: AttackConfig, classes: int) -> Attack | None:
    """The attack, on data of `classes` classes; None if the config requests none."""
    if chosen.kind == "none":
        return None
    ids = hostile_ids(chosen.clients, chosen.ids)
    return Attack(lookup("attack.kind", chosen.kind, ATTACKS), ids, chosen.strength, chosen.from_round, classes)


def check_attack_acts(config: Config) -> None:
    """Raises a `UserError` for an attack whose strength is the one that changes nothing. That it begins after the last
    round is no mistake: a run may be continued."""
    chosen = config.attack
    if chosen.kind != "none" and chosen.strength == ATTACKS[chosen.kind].idle:
        raise UserError(
            f"config.attack.strength got {chosen.strength:g}, with which config.attack.kind={chosen.kind} changes "
            "nothing; expected another strength"
        )


def refuse_attack(config: Config) -> None:
    """Raises a `UserError` for a config with hostile clients, which exist only in simulations on one machine."""
    if config.attack.kind != "none":
        raise UserError(
            f"config.attack.kind got '{config.attack.kind}', but attacks are for experiments on one machine; expected "
            "none in a deployment"
        )


def hostility(config: Config) -> dict[str, Any]:
    """The summary's entries on attack and defence; empty if the config requests neither."""
    attack = {} if config.attack == AttackConfig() else {"attack": dataclasses.asdict(config.attack)}
    return attack | ({} if config.defence == DefenceConfig() else {"defence": dataclasses.asdict(config.defence)})
