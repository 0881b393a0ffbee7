"""Every formulation of single convolutions: processor time of the three maps in a compiled loop, and the plan's choice.

taskset -c 0 python -m benchmarks.layers --layers 16,32,64,128,3,2 16,4,512,512,3,1
taskset -c 0 python -m benchmarks.layers --plan bfloat16 --layers 64,16,32,64,3,1
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.tables import markdown
from benchmarks.timing import timed
from fdgjax.nn.formulations import Formulation
from fdgjax.nn.geometry import Case, Geometry
from fdgjax.nn.lowerings import FITS, FORWARD, INPUT_GRADIENT, KERNEL_GRADIENT, PLANS
from fdgjax.utils.command import command, positive_number

MAPS: Mapping[str, tuple[Mapping[str, Formulation], str]] = {
    "forward": (FORWARD, "xk"),
    "input_gradient": (INPUT_GRADIENT, "gk"),
    "kernel_gradient": ({name: f for name, f in KERNEL_GRADIENT.items() if name != "library"}, "xg"),
}
"""By map its formulations, and which of image x, kernel k and output's gradient g it takes; without XLA's own kernel
gradient, which takes seconds in a loop."""


class Chosen(NamedTuple):
    """The options: layers to measure, the plan that chooses, formulations to leave out, turns of the loop, and how
    often it is timed."""

    layers: list[Case]
    plan: str
    without: list[str]
    turns: int
    repeats: int


@command
def main(argv: Sequence[str]) -> int:
    """Measures and prints."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = options.add_argument
    shape = "batch, pixels along an axis, channels in and out, window, stride"
    add("--layers", nargs="+", type=layer, default=[layer("16,32,64,128,3,2")], metavar="N,P,I,O,W,S", help=shape)
    add("--plan", choices=("cpu", "bfloat16"), default="cpu", help="bfloat16: with the formulations that round")
    add("--without", nargs="*", default=[], help="formulations to leave out, but for the chosen")
    add("--turns", type=positive_number, default=10, help="of one compiled loop")
    add("--repeats", type=positive_number, default=4, help="how often each is timed; the least counts")
    chosen = Chosen(**vars(options.parse_args(argv)))
    rows = [row(case, name, chosen) for case in chosen.layers for name in MAPS]
    print(markdown(["layer", "map", "chosen", "ms"], rows))
    return 0


def layer(text: str) -> Case:
    """A layer from six numbers, padded so that a stride of 1 keeps the size."""
    try:
        batch, pixels, inputs, outputs, window, stride = map(positive_number, text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got '{text}'; expected six numbers, as in 16,32,64,128,3,2") from error
    pads = (window // 2, window // 2)
    return Case(Geometry((pixels, pixels), (window, window), (stride, stride), (pads, pads), 1), batch, inputs, outputs)


def row(case: Case, name: str, chosen: Chosen) -> list[str]:
    """One map's line: the CPU's choice, and the time of each formulation, the fastest first."""
    formulations, takes = MAPS[name]
    choice = getattr(PLANS[chosen.plan](case), name)
    left_out = {*chosen.without, *(f for f in formulations if "rounded" in f and chosen.plan != "bfloat16")}
    fitting = {f for f in formulations if f == choice or (f not in left_out and (f not in FITS or FITS[f](case)))}
    times = sorted((milliseconds(formulations[f], case, takes, chosen), f) for f in fitting)
    (size, _), (window, _), (stride, _) = case.geometry.size, case.geometry.window, case.geometry.strides
    text = f"{case.batch}, {size}x{size}, {case.inputs} to {case.outputs}, {window}x{window}, stride {stride}"
    return [text, name.replace("_", " "), choice, ", ".join(f"{f} {time:.2f}" for time, f in times)]


def milliseconds(formulation: Formulation, case: Case, takes: str, chosen: Chosen) -> float:
    """Processor time of one turn; both arguments change in each, so that nothing is computed before the loop."""
    (height, width), geometry = case.geometry.out(), case.geometry
    shapes = {
        "x": (case.batch, *geometry.size, case.inputs),
        "k": (*geometry.window, case.inputs, case.outputs),
        "g": (case.batch, height, width, case.outputs),
    }
    a, b = (jax.random.normal(jax.random.key(i), shapes[letter]) for i, letter in enumerate(takes))
    result = jax.eval_shape(lambda: formulation(a, b, geometry))

    def turn(_: int, before: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        a, b, out = before
        nearly_one = 1 + 1e-30 * out.ravel()[0]
        a, b = a * nearly_one, b * nearly_one
        return a, b, formulation(a, b, geometry)

    loop: Callable[[tuple[jax.Array, ...]], tuple[jax.Array, ...]] = jax.jit(
        lambda start: jax.lax.fori_loop(0, chosen.turns, turn, start)
    )
    start = (a, b, jnp.zeros(result.shape, result.dtype))
    measured = timed(lambda _: jax.block_until_ready(loop(start)), start, chosen.repeats, "cpu")
    return 1e3 * min(measured.seconds) / chosen.turns


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
