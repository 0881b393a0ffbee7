"""A config's privacy: its checks, the noise of a round, and what all rounds cost."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fdgjax.config.schema import Config, DefenceConfig, PrivacyConfig
from fdgjax.contract import Method
from fdgjax.data.federation import Federation
from fdgjax.engine.exposure import EXPOSURES
from fdgjax.engine.local import Batching
from fdgjax.engine.privacy import budget, check_accountant, check_noise, needed_noise
from fdgjax.engine.privacy.leakage import why_not
from fdgjax.engine.privacy.noise import Privacy
from fdgjax.utils.errors import UserError


class Protection(NamedTuple):
    """Differential privacy as it is carried out.

    round: what the engine does. epsilon: the epsilon spent after a number of rounds, the largest over all those who are
    protected.
    """

    round: Privacy
    epsilon: Callable[[int], float]


def check_privacy(config: Config) -> None:
    """Raises a `UserError` for values of `config.privacy` that are invalid or contradict each other."""
    chosen, default = config.privacy, PrivacyConfig()
    if not chosen.unit:
        for key, value in dataclasses.asdict(chosen).items():
            if value != getattr(default, key):
                raise UserError(
                    f"config.privacy.{key} got {value!r}, but config.privacy.unit is empty, which protects nobody; "
                    "expected config.privacy.unit=client or sample"
                )
        return
    for key in ("clip", "noise", "epsilon"):
        if not 0 <= getattr(chosen, key) < math.inf:
            raise UserError(f"config.privacy.{key} got {getattr(chosen, key)}; expected a number from 0, such as 1.0")
    if not chosen.clip:
        raise UserError("config.privacy.clip got 0, which leaves nothing of an update; expected a norm, such as 1.0")
    if bool(chosen.noise) == bool(chosen.epsilon):
        raise UserError(
            f"config.privacy got noise={chosen.noise} and epsilon={chosen.epsilon}; expected one of them above 0, from "
            "which the other follows; leave one at 0"
        )
    if chosen.noise:
        check_noise(chosen.noise)
    if not 0 < chosen.delta < 1:
        raise UserError(f"config.privacy.delta got {chosen.delta}; expected a probability above 0, such as 1e-5")
    if chosen.unit == "sample" and chosen.where != default.where:
        raise UserError(
            f"config.privacy.where got '{chosen.where}', but noise that protects a sample is added in its client's "
            f"training; expected {default.where}, or config.privacy.unit=client"
        )
    if chosen.unit == "client" and config.defence != DefenceConfig():
        raise UserError(
            "config.defence got a defence with config.privacy.unit=client, but what it makes of an update depends on "
            "others, which no noise covers; expected none; noise and clipping bound every client already"
        )
    if chosen.unit == "client" and config.drop_nonfinite:
        raise UserError(
            "config.drop_nonfinite got True with config.privacy.unit=client, but a client left out changes the others' "
            "weights, which no noise covers; expected False"
        )


def protection(
    config: Config, method: Method, batching: Batching, federations: Sequence[Federation]
) -> Protection | None:
    """The privacy mechanism of each round, and its cost; None if nobody is protected.

    Args:
      config: the experiment, checked.
      method: the method that is trained.
      batching: how local data become minibatches.
      federations: each seed's training data.

    Raises:
      UserError: no accountant is installed, delta protects nobody among so many, the method reveals more than the
        noise covers, or no noise level reaches the requested epsilon.
    """
    chosen = config.privacy
    if not chosen.unit:
        return None
    check_accountant()
    exposures = EXPOSURES[chosen.unit](config.clients_per_round, batching, federations)
    check_delta(chosen, max((one.whole for one in exposures), default=0))
    refuse_leaks(config, method, federations[0])
    noise = chosen.noise or needed_noise(exposures, chosen.epsilon, chosen.delta, config.rounds)
    return Protection(in_round(config, noise), budget(exposures, noise, chosen.delta))


def check_delta(chosen: PrivacyConfig, count: int) -> None:
    """Raises a `UserError` for a delta that allows one of `count` clients or samples to be shown entirely."""
    if chosen.delta * count >= 1:
        raise UserError(
            f"config.privacy.delta got {chosen.delta:g}, with which one of {count} {chosen.unit}s may be shown "
            f"entirely; expected well below {1 / count:.2g}, such as {0.1 / count:.1g}"
        )


def refuse_leaks(config: Config, method: Method, federation: Federation) -> None:
    """Raises a `UserError` for a method that reveals more than the noise covers; of the data, shapes count."""
    unit = config.privacy.unit
    if reason := why_not(method, federation, samples=unit == "sample"):
        raise UserError(
            f"config.privacy.unit got '{unit}', but method '{config.method.name}' shows more: {reason}; "
            "expected a method and a model that do not"
        )


def in_round(config: Config, noise: float) -> Privacy:
    """What the engine does in a round, with this noise multiplier."""
    chosen = config.privacy
    return Privacy(chosen.clip, noise, chosen.unit == "sample", chosen.where)
