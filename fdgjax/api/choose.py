"""Choosing a method from Python, as `fdgjax choose` does."""

import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from rich.console import Console as RichConsole

from fdgjax.api.settings import config_from, set_values
from fdgjax.api.trainer import lending, named_arrays
from fdgjax.config import Config
from fdgjax.config.register import register_method
from fdgjax.data.sources.arrays import Arrays
from fdgjax.data.sources.domains import Domains
from fdgjax.evaluation.best_set import SCORES
from fdgjax.evaluation.figure_kinds import figure_kind
from fdgjax.evaluation.probability_figures import with_figure
from fdgjax.evaluation.selection import accuracy_key
from fdgjax.methods import Entry
from fdgjax.models.user_module import Network
from fdgjax.run.batched_runs import LARGEST
from fdgjax.run.console import Console
from fdgjax.sweeps.cells import check_names
from fdgjax.sweeps.choice import no_choice, read_choice
from fdgjax.sweeps.choice_record import Choice, write_choice
from fdgjax.sweeps.choosing import cells_of, choosing_of, default_methods, protocol_of
from fdgjax.sweeps.work import Sweep, begin, work_on_cells
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


def choose(
    preset: str = "",
    /,
    *,
    data: Arrays | None = None,
    classes: Sequence[str] | None = None,
    model: str | Network | None = None,
    methods: Sequence[str | Entry] | None = None,
    target: str | None = None,
    seeds: int = 3,
    search: int = 0,
    by: str = "mean",
    figure: str = "",
    out: str | os.PathLike[str] | None = None,
    together: int = LARGEST,
    verbose: bool = False,
    **keys: Any,
) -> Choice:
    """Chooses a method: each training domain is unseen in turn, for every candidate (`fdgjax choose`).

    The choice has `recommended`, `indistinguishable`, `scores` by method and domain, `interval` for a new domain, and
    `print(choice)` shows its table.

    Args:
      preset: a data set or preset, such as `"pretrained_folder"`; may be empty with `data`.
      data, classes, model: as for `fdgjax.experiment`.
      methods: the candidates, names or entries; None for all that fit the labels, the data and the network.
      target: a domain that stays out of all runs; None for none.
      seeds: of every run. search: draws of each method's search values, as further candidates.
      by: the score over domains, `mean` or `worst`. figure: of each run's summary: an accuracy, a loss, an ece, or a
        figure of probabilities, such as `"ood_auroc"`; '' for `"ood_accuracy"`, or of a regression `"ood_rmse"`.
      out: a folder for the runs, in which the same call goes on after a stop; None for a temporary one.
      together: the largest number of runs that train as one program. verbose: whether to print each run's lines.
      keys: any key of the config, as for `fdgjax.experiment`.

    Raises:
      UserError: like `fdgjax choose`; also if every run failed.
    """
    lookup("score", by, SCORES)
    figure = figure or accuracy_key(keys.get("task", Config().task), "ood")
    figure_kind(figure)
    given = named_arrays(data, classes)
    with lending(given):
        protocol = protocol_of(preset.lstrip(":"), {key.replace("__", "."): value for key, value in keys.items()})
        names = default_methods(protocol) if methods is None else [name_of(one) for one in methods]
        configs = [config_of(name, preset, given, model, seeds, keys) for name in names]
        for config in configs:
            config.figures = with_figure(config.figures, figure)
        choosing = choosing_of(configs, target or "", draws=search, only_fit=methods is None)
        with tempfile.TemporaryDirectory() as temporary:
            folder, cells = Path(out or temporary), cells_of(choosing)
            check_names(cells)
            sweep = Sweep(cells, cells, folder, {}, together=together)
            begin(sweep)
            work_on_cells(sweep, Console(RichConsole(quiet=not verbose)), threading.Event())
            choice = read_choice(choosing, cells, folder, figure, by, {})
            if choice is None:
                raise UserError(no_choice(cells, folder))
            write_choice(choice, folder)
    return choice


def name_of(method: str | Entry) -> str:
    """The name of a method, which is registered if it is an entry."""
    return register_method(method) if isinstance(method, Entry) else method


def config_of(
    name: str,
    preset: str,
    given: Mapping[str, Domains],
    model: str | Network | None,
    seeds: int,
    keys: dict[str, Any],
) -> ConfigDict:
    """One candidate's config; raises like `fdgjax.experiment`."""
    config = config_from(f"{name}:{preset.lstrip(':')}" if preset else name, given, model)
    config.seeds, config.writers, config.devices, config.data.target = seeds, "", 1, ""
    set_values(config, keys)
    return config
