"""Trains runs that differ only in seeds, unseen domains and numeric hyperparameters as one program; these are its
arguments."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict

from fdgjax.config import Config, resolved, to_plain
from fdgjax.data.federation import TABLES, Rows
from fdgjax.distributed import Stop
from fdgjax.engine.batched_hyper import Undecided
from fdgjax.experiments import Experiment, build, describe
from fdgjax.loggers import check_loggers
from fdgjax.run.compilation import state_shapes
from fdgjax.run.console import Console
from fdgjax.run.description import label_summary
from fdgjax.run.device_choice import as_begun
from fdgjax.run.outputs import RunOutput, places
from fdgjax.run.records import Workdir, check_place, own_workdir
from fdgjax.run.runner import summed_up, train_with_records
from fdgjax.utils.errors import UserError
from fdgjax.utils.words import words_of

LARGEST = 16
"""The default limit on the number of members of a family (the runs of one program)."""


def batches(configs: Sequence[Config], largest: int = LARGEST) -> list[list[int]]:
    """The indices of configs that may train as one program, in groups of at most `largest`, in order.

    Such configs may differ only in their first seed, in the domains that are unseen or excluded (as many in all of
    them), and in the method's float hyperparameters. A float must be zero in all of them or in none, and likewise one
    where its default is one, since methods skip computations at these values.
    """
    groups: dict[str, list[int]] = {}
    for place, config in enumerate(configs):
        groups.setdefault(repr(common(config)), []).append(place)
    return [group[i : i + largest] for group in groups.values() for i in range(0, len(group), largest)]


def common(config: Config) -> dict[str, Any]:
    """The part of a config that all members of its family share; compared to group configs."""
    rest = to_plain(config) | {"seed": None}
    # They only change the tables of positions, which are arguments of the program.
    rest["data"] |= {"target": None, "excluded": len(words_of(config.data.excluded))}
    defaults = {field.name: field.default for field in dataclasses.fields(config.method)}
    rest["method"] = {
        name: (value == 0, value == defaults[name] == 1) if isinstance(value, float) else value
        for name, value in rest["method"].items()
    }
    # The privacy accounting depends on the config's own numbers, so a protected run trains alone.
    return rest | {"alone": to_plain(config)} if config.privacy.unit else rest


def differing_values(configs: Sequence[Config]) -> str:
    """The keys in which the members of a family differ, with their values: `method.mu=0.1,0.01; seed=0,1`."""
    each = [flatten_dict(to_plain(config), sep=".") for config in configs]
    values = {key: list(dict.fromkeys(one[key] for one in each)) for key in each[0] if key != "devices"}
    return "; ".join(f"{key}={','.join(map(str, own))}" for key, own in values.items() if len(own) > 1)


def run_batched(configs: Sequence[Config], paths: Sequence[Path], console: Console, stop: Stop) -> list[dict[str, Any]]:
    """Trains a family, or resumes it, each member in its own folder, and returns the members' summaries.

    Each folder holds what the run would write if it were trained alone, to rounding, so that it can also be continued
    as a single run.

    Args:
      configs: a group made by `batches`, none of them finished.
      paths: their folders.
      console, stop: as in `fdgjax.run.runner.run_experiment`.

    Raises:
      UserError: invalid input, a member that diverged, members stopped at different rounds, a method that needs the
        values of its hyperparameters at compile time, or one that keeps a state for each sample where members have
        different numbers of them; each member can still be trained alone.
      TooLarge: training all members at once needs more memory than is free.
      Interrupted: `stop` was set; the states are saved.
    """
    for path in paths:
        check_place(path)
    check_loggers(configs[0].writers)
    begun = [as_begun(config, path) for config, path in zip(configs, paths, strict=True)]
    if len({config.devices for config in begun}) > 1:
        raise UserError("members of a family began on different numbers of devices; expected one number")
    experiment = tried(lambda: build(begun[0], begun[1:]))
    tried(lambda: jax.eval_shape(experiment.round, state_shapes(experiment), experiment.train))
    tried(lambda: jax.eval_shape(experiment.evaluation.observe, state_shapes(experiment), experiment.federation))
    refuse_sample_states(experiment, [RunOutput(*pair) for pair in zip(begun, map(Workdir, paths), strict=True)])
    built = experiment.config
    each = [dataclasses.replace(resolved(config), devices=built.devices) for config in begun]
    with contextlib.ExitStack() as held:
        outputs = [
            RunOutput(config, held.enter_context(own_workdir(path, config, console.say)))
            for config, path in zip(each, paths, strict=True)
        ]
        console.say(f"{len(outputs)} runs as one program: {differing_values(each)}")
        console.say(f"{experiment.config.model.name}: {experiment.cost}")
        console.say(label_summary(experiment))
        return summed_up(outputs, train_with_records(experiment, outputs, console, stop, ()))


def refuse_sample_states(experiment: Experiment, outputs: Sequence[RunOutput]) -> None:
    """Raises a `UserError` if the state has a place for each sample, and members have different numbers of them: a
    member's checkpoint would not fit the member alone."""
    tables = [describe(experiment, place).tables for place in places(outputs)]
    if all(one == tables[0] for one in tables):
        return
    train = experiment.train

    def wider(rows: Rows) -> Rows:
        return rows._replace(places=jnp.pad(rows.places, ((0, 0), (0, 0), (0, 1))))

    init: Any = experiment.init
    tables_of: dict[str, Any] = {name: wider(getattr(train, name)) for name in TABLES}
    wide = train._replace(**tables_of)
    if jax.eval_shape(init) != jax.eval_shape(init.func, *init.args[:-1], wide):
        raise UserError("the runs cannot train as one program: the method's state depends on the number of samples")


def tried(make: Callable[[], Any]) -> Any:
    """Calls `make` and returns its result.

    Raises:
      UserError: tracing needs the concrete value of a number that differs between the members.
    """
    try:
        return make()
    except (Undecided, TypeError, ValueError, jax.errors.ConcretizationTypeError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"the runs cannot train as one program: the method needs a number before it is compiled ({reason})"
        ) from error
