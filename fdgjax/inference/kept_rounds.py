"""The rounds of a run whose states are kept, and which of them predicts."""

import logging
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.config import Config, seeds_of
from fdgjax.engine import State, each_seed
from fdgjax.evaluation.metrics import Record
from fdgjax.evaluation.selection import reported
from fdgjax.experiments import Experiment, Outline
from fdgjax.run.records import Checkpoint, Workdir
from fdgjax.run.records.checkpoints import steps
from fdgjax.run.reopen import checkpoint_of
from fdgjax.run.selected import keeps_state
from fdgjax.utils.errors import UserError

LOGGER = logging.getLogger(__name__)
LAST, SELECTED = "last", "selected"


def kept_state(
    experiment: Experiment | Outline, path: Path, index: int, round_: str = ""
) -> tuple[State, Sequence[Record]]:
    """A seed's state after a round, and its records up to the newest checkpoint.

    Args:
      experiment: the run's.
      path: the run's folder.
      index: the seed's position among the run's seeds.
      round_: `last` for the newest checkpoint; `selected` for the round that `config.selection` chooses; a number; or
        '' for `selected` if that state is kept, else `last`. A state that the labels of the unseen domain would choose
        (`oracle`) is never kept.

    Raises:
      UserError: no checkpoint, another word, or a round whose state is not kept.
    """
    config, newest = experiment.config, checkpoint_of(experiment, path)
    count, records, last = len(seeds_of(config)), newest.history.records[index], int(np.max(newest.state.round))
    wanted, saved = wanted_round(round_, config, records, last), saved_rounds(path)
    states = states_of(newest, count, index)
    if wanted in saved - states.keys():
        states |= states_of(checkpoint_of(experiment, path, latest=wanted), count, index)
    if wanted in states:
        return states[wanted], records
    what = f"the state of round {wanted}" + ("" if round_.isdecimal() else f", which '{config.selection}' selects,")
    if round_:
        kept = ", ".join(map(str, sorted(saved | states.keys())))
        raise UserError(f"{what} is not kept; expected the round last, or one of {kept}")
    LOGGER.warning(f"{what} is not kept, as the run began with an earlier version: round {last} is used")
    return states[last], records


def kept_states(experiment: Experiment, path: Path, round_: str) -> State:
    """`kept_state` of every seed, with a leading seed axis if there are several."""
    each = [kept_state(experiment, path, index, round_)[0] for index in range(len(experiment.seeds))]
    return each[0] if len(each) == 1 else jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


def states_of(checkpoint: Checkpoint, seeds: int, index: int) -> dict[int, State]:
    """One seed's states in a checkpoint, by their rounds."""
    held = [checkpoint.state] if checkpoint.selected is None else [checkpoint.state, checkpoint.selected]
    return {int(own.round): own for own in (each_seed(one, seeds)[index] for one in held)}


def wanted_round(round_: str, config: Config, records: Sequence[Record], last: int) -> int:
    """The number of the round that `kept_state` is asked for; raises for another word, and for `selected` by `oracle`.

    Args:
      round_, config, records: as in `kept_state`.
      last: the newest checkpoint's round.
    """
    if round_ not in ("", LAST, SELECTED) and not round_.isdecimal():
        raise UserError(f"--round got '{round_}'; expected {LAST}, {SELECTED} or the number of a round")
    if round_.isdecimal():
        return int(round_)
    if keeps_state(config.selection) and round_ != LAST:
        return int(reported(records, config.selection).get("round", last))
    if round_ == SELECTED and config.selection != LAST:
        raise UserError(
            f"--round got {SELECTED}, but the run's rule '{config.selection}' looks at labels of the unseen domain, "
            "and no state is kept by these; expected last"
        )
    return last


def saved_rounds(path: Path) -> set[int]:
    """The rounds that have a checkpoint in a run's folder."""
    return {int(folder.name) for folder in steps(Workdir(path).checkpoints)}
