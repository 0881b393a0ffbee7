"""Compiling an experiment's programs before its first round, and the shapes of its state."""

from typing import Any

import jax

from fdgjax.building import Experiment
from fdgjax.engine import State, everywhere
from fdgjax.run.memory import Memory, predict


def compile_ahead(experiment: Experiment, state: State) -> tuple[Experiment, Memory]:
    """The experiment with its programs compiled, so that no round can compile again, and the memory they will take."""
    train, federation, evaluation = experiment.train, experiment.federation, experiment.evaluation
    # Typed as Callable; until here they are jitted functions.
    programs: list[Any] = [experiment.round, evaluation.observe]
    arguments = ((state, train), (state, federation))
    round_, observe = (f.lower(*args).compile() for f, args in zip(programs, arguments, strict=True))
    memory = predict((round_, observe), (train, federation), state, experiment.config.devices)
    return experiment._replace(round=round_, evaluation=evaluation._replace(observe=observe)), memory


def state_shapes(experiment: Experiment) -> State:
    """Shape, dtype and sharding of the state's arrays, with which a checkpoint is restored."""
    place = everywhere(experiment.execution) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    # Typed as Callable; it is a jitted function.
    init: Any = experiment.init.func
    shapes = init.eval_shape(*experiment.init.args)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes)
