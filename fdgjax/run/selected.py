"""The state of the round that a run's selection rule has chosen so far, kept in each checkpoint beside the newest.

It is kept for the rules that look at the clients' held-out data: `last` needs no second state, and a state that was
chosen by the labels of the unseen domain (`oracle`) must not be used for anything.

Only rounds that every longer run would evaluate, too, are considered, so that a run continued for more rounds has the
state of the longer run; the last round's state is in its checkpoint anyway.
"""

from collections.abc import Sequence

import jax
import numpy as np

from fdgjax.config import Config
from fdgjax.contract import PyTree
from fdgjax.engine import State
from fdgjax.evaluation.metrics import Record
from fdgjax.evaluation.selection import HELD_OUT, SELECTIONS, reported
from fdgjax.utils.registry import lookup


def keeps_state(rule: str) -> bool:
    """Whether the state of the round that a selection rule chooses is kept."""
    return lookup("selection", rule, SELECTIONS).looks_at == HELD_OUT


def may_be_selected(config: Config, round_: int) -> bool:
    """Whether a round's state may have to be kept, once its figures are known."""
    return keeps_state(config.selection) and round_ % config.eval_every == 0


def updated(selected: State | None, state: State, records: Sequence[Sequence[Record]], config: Config) -> State | None:
    """The selected state after a round: for each seed the round's own if the rule chooses it, else the one before.

    Args:
      selected: the one before, on the host; None for none.
      state: the round's, with a leading seed axis if there are several seeds.
      records: for each seed, those of its rounds; the last one is this round's.
      config: the run's.

    Returns:
      A copy on the host, as the next round donates the state's buffers; None before the first evaluation.
    """
    round_ = records[0][-1]["round"]
    if not may_be_selected(config, round_):
        return selected
    chosen = np.array([chosen_round(of_seed, config) == round_ for of_seed in records])
    if not chosen.any():
        return selected
    if selected is None or chosen.all():
        return jax.tree.map(np.array, state)
    return jax.tree.map(lambda old, new: replaced_rows(old, new, chosen), selected, state)


def replaced_rows(old: PyTree, new: PyTree, chosen: np.ndarray) -> np.ndarray:
    """A copy of `old`, `[seeds, ...]`, with the rows of the chosen seeds from `new`."""
    found = np.array(old)
    found[chosen] = np.asarray(new)[chosen]
    return found


def chosen_round(records: Sequence[Record], config: Config) -> int | None:
    """The round that the config's rule chooses among those considered; None before the first of them."""
    considered = [record for record in records if record["round"] % config.eval_every == 0]
    return reported(considered, config.selection).get("round")
