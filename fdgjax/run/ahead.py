"""Compiling an experiment's programs before its first round, and the shapes of its state."""

from typing import Any

import jax

from fdgjax.engine import State, everywhere
from fdgjax.experiment import Experiment
from fdgjax.run.kept import Shelf, compiled
from fdgjax.run.memory import Memory, predict


def compile_ahead(experiment: Experiment, state: State, shelf: Shelf | None = None) -> tuple[Experiment, Memory]:
    """The experiment with its programs compiled, so that no round can compile again, and the memory they will take.

    Those on the shelf are not compiled but loaded.
    """
    train, federation, evaluation = experiment.train, experiment.federation, experiment.evaluation
    round_ = compiled("round", experiment.round, (state, train), shelf)
    observe = compiled("evaluation", evaluation.observe, (state, federation), shelf)
    memory = predict((round_, observe), (train, federation), state, experiment.config.devices)
    return experiment._replace(round=round_, evaluation=evaluation._replace(observe=observe)), memory


def first_state(experiment: Experiment, shelf: Shelf | None = None) -> State:
    """The state before the first round."""
    init = experiment.init
    state: State = compiled("init", init.func, init.args, shelf)(*init.args)
    return state


def state_shapes(experiment: Experiment) -> State:
    """Shape, dtype and sharding of the state's arrays, with which a checkpoint is restored."""
    place = everywhere(experiment.execution) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    # Typed as Callable; it is a jitted function.
    init: Any = experiment.init.func
    shapes = init.eval_shape(*experiment.init.args)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes)
