"""Compiling an experiment's programs before its first round, and the shapes of its state."""

from typing import Any

import jax
from jax.stages import Lowered

from fdgjax.engine import State, everywhere
from fdgjax.experiments import Experiment, Outline
from fdgjax.run.memory_check import Memory, predict_memory


def compile_ahead(experiment: Experiment, state: State) -> tuple[Experiment, Memory]:
    """The experiment with its programs compiled, so that no round recompiles, and the memory they will take."""
    train, federation, evaluation = experiment.train, experiment.federation, experiment.evaluation
    # Typed as Callable; they are jitted functions.
    round_: Any = experiment.round
    observe: Any = evaluation.observe
    round_, observe = round_.lower(state, train).compile(), observe.lower(state, federation).compile()
    memory = predict_memory((round_, observe), (train, federation), state, experiment.config.devices)
    return experiment._replace(round=round_, evaluation=evaluation._replace(observe=observe)), memory


def first_state(experiment: Experiment) -> State:
    """The state before the first round."""
    # Typed as Callable; it is a jitted function.
    init: Any = experiment.init.func
    lowered = init.lower(*experiment.init.args)
    state: State = lowered.compile(quick_to_compile(lowered) or None)(*experiment.init.args)
    return state


SUMS = ("stablehlo.dot", "stablehlo.convolution", "stablehlo.reduce")
"""Operations that sum: the compiler may choose the order of the sum, and with it the rounding."""


def quick_to_compile(lowered: Lowered) -> dict[str, Any]:
    """XLA's options for a program that runs once: on a CPU, the lowest optimisation level that gives the same bits.

    This halves the compile time of random draws. A program with sums, such as one that trains an autoencoder, would
    round differently at that level and keeps the default options.
    """
    plain = jax.default_backend() == "cpu" and not any(name in lowered.as_text() for name in SUMS)
    return {"xla_backend_optimization_level": 1} if plain else {}


def state_shapes(experiment: Experiment | Outline) -> State:
    """Shape, dtype and sharding of the state's arrays, as needed to restore a checkpoint."""
    place = everywhere(experiment.execution) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    # Typed as Callable; it is a jitted function.
    init: Any = experiment.init.func
    shapes = init.eval_shape(*experiment.init.args)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes)
