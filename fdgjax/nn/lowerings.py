"""How a convolution is computed: the table that picks formulations with the same numbers per backend and shape.

XLA on the CPU has fast matrix products and, outside loops, fast convolutions. Inside a `while` loop (every
`lax.scan` over minibatches is one) it runs the kernel gradient that autodiff writes tens of times slower,
and a client axis on the kernel makes it a grouped convolution, again many times slower. Every formulation
is built from operations that the loop leaves alone.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from fdgjax.nn import depthwise, folded, winograd
from fdgjax.nn.formulations import (
    Formulation,
    by_adjoint,
    im2col_forward,
    library_forward,
    library_kernel_gradient,
    shift_forward,
    shift_kernel_gradient,
    transposed_kernel_gradient,
    xcols_kernel_gradient,
)
from fdgjax.nn.geometry import Geometry
from fdgjax.registry import lookup

FORWARD: Mapping[str, Formulation] = {
    "library": library_forward,
    "im2col": im2col_forward,
    "shift": shift_forward,
    "depthwise": depthwise.forward,
    "folded": folded.forward,
    "winograd": winograd.forward,
}

INPUT_GRADIENT: Mapping[str, Formulation] = {
    "library": by_adjoint(library_forward),
    "im2col": by_adjoint(im2col_forward),
    "shift": by_adjoint(shift_forward),
    "depthwise": by_adjoint(depthwise.forward),
    "winograd": winograd.input_gradient,
}

KERNEL_GRADIENT: Mapping[str, Formulation] = {
    "library": library_kernel_gradient,
    "shift": shift_kernel_gradient,
    "transposed": transposed_kernel_gradient,
    "xcols": xcols_kernel_gradient,
    "depthwise": depthwise.kernel_gradient,
    "folded": folded.kernel_gradient,
    "winograd": winograd.kernel_gradient,
}


def ungrouped(geometry: Geometry, inputs: int, outputs: int) -> bool:
    """Whether all channels are convolved together."""
    del inputs, outputs
    return geometry.groups == 1


FITS: Mapping[str, Callable[[Geometry, int, int], bool]] = {
    "im2col": ungrouped,
    "xcols": ungrouped,
    "transposed": ungrouped,
    "depthwise": depthwise.fits,
    "folded": lambda geometry, inputs, outputs: folded.fits(geometry),
    "winograd": lambda geometry, inputs, outputs: winograd.fits(geometry),
}
"""Which convolutions, from so many input to so many output channels, a formulation can compute; all where it is not
named here."""


class Plan(NamedTuple):
    """Names of the formulations of the three maps, and how further clients are run: `loop`, or `batch`
    (library's vmap)."""

    forward: str
    input_gradient: str
    kernel_gradient: str
    clients: str


LIBRARY = Plan("library", "library", "library", "batch")
IM2COL = Plan("im2col", "im2col", "xcols", "batch")
WINOGRAD = Plan("winograd", "winograd", "winograd", "loop")
LARGEST_IMAGE = 4
"""Channels up to which an input counts as an image."""


def cpu_plan(geometry: Geometry, inputs: int, outputs: int) -> Plan:
    """The measured choice for XLA:CPU."""
    if depthwise.fits(geometry, inputs, outputs):
        return Plan("depthwise", "depthwise", "depthwise", "loop")
    if geometry.groups > 1:
        return Plan("shift", "shift", "shift", "loop")
    if geometry.pointwise:  # im2col is then a plain matrix product
        return Plan("im2col", "im2col", "xcols", "loop")
    if inputs <= LARGEST_IMAGE:  # the library's convolution cannot fill its registers from so few channels
        pairs = folded.fits(geometry)
        return Plan("folded" if pairs else "im2col", "library", "folded" if pairs else "xcols", "loop")
    if winograd.fits(geometry) and winograd.pays(geometry, inputs, outputs):
        return WINOGRAD
    if outputs <= inputs:
        return Plan("library", "library", "transposed", "loop")
    return Plan("library", "library", "shift", "loop")


def im2col_plan(geometry: Geometry, inputs: int, outputs: int) -> Plan:
    """Matrix products everywhere."""
    del inputs, outputs
    return IM2COL if geometry.groups == 1 else Plan("shift", "shift", "shift", "batch")


def winograd_plan(geometry: Geometry, inputs: int, outputs: int) -> Plan:
    """Winograd's algorithm wherever it can be used."""
    return WINOGRAD if winograd.fits(geometry) else cpu_plan(geometry, inputs, outputs)


PLANS: Mapping[str, Callable[[Geometry, int, int], Plan]] = {
    "cpu": cpu_plan,
    "library": lambda geometry, inputs, outputs: LIBRARY,
    "im2col": im2col_plan,
    "winograd": winograd_plan,
}


def choose(plan: Plan | str, geometry: Geometry, inputs: int, outputs: int) -> Plan:
    """`plan` itself, or what the one of that name picks for a convolution from `inputs` to `outputs` channels.

    Raises:
      ValueError: a formulation of `plan` cannot compute this convolution.
    """
    if isinstance(plan, str):
        return lookup("convolution plan", plan, PLANS)(geometry, inputs, outputs)
    unfit = [name for name in plan[:3] if name in FITS and not FITS[name](geometry, inputs, outputs)]
    if unfit:
        raise ValueError(
            f"conv2d got plan={plan}, but '{unfit[0]}' cannot compute {geometry}; expected a name in PLANS"
        )
    return plan
