"""How a convolution is computed: the table that picks among equivalent formulations, per backend and shape.

XLA on the CPU has fast matrix products and, outside loops, fast convolutions. Inside a `while` loop (every
`lax.scan` over minibatches is one) it runs autodiff's kernel gradient tens of times slower, and a client
axis on the kernel makes it a grouped convolution, which is several times slower again. Every formulation is
built from operations that are as fast inside a loop.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from fdgjax.nn import blocked, depthwise, folded, phases, rounded, winograd
from fdgjax.nn.formulations import (
    Formulation,
    by_adjoint,
    columns_input_gradient,
    few_images_kernel_gradient,
    im2col_forward,
    library_forward,
    library_kernel_gradient,
    rows_kernel_gradient,
    shift_forward,
    shift_kernel_gradient,
    transposed_kernel_gradient,
    xcols_kernel_gradient,
)
from fdgjax.nn.geometry import Case
from fdgjax.utils.processor import AMX, instructions
from fdgjax.utils.registry import lookup

FORWARD: Mapping[str, Formulation] = {
    "library": library_forward,
    "im2col": im2col_forward,
    "shift": shift_forward,
    "depthwise": depthwise.forward,
    "folded": folded.forward,
    "blocked": blocked.forward,
    "winograd": winograd.forward,
    "winograd_small": partial(winograd.forward, tile=winograd.SMALL_TILE),
    "rounded": rounded.forward,
}

INPUT_GRADIENT: Mapping[str, Formulation] = {
    "library": by_adjoint(library_forward),
    "im2col": by_adjoint(im2col_forward),
    "shift": by_adjoint(shift_forward),
    "depthwise": by_adjoint(depthwise.forward),
    "columns": columns_input_gradient,
    "phases": phases.input_gradient,
    "winograd": winograd.input_gradient,
    "winograd_small": partial(winograd.input_gradient, tile=winograd.SMALL_TILE),
    "rounded": by_adjoint(rounded.forward),
}

KERNEL_GRADIENT: Mapping[str, Formulation] = {
    "library": library_kernel_gradient,
    "shift": shift_kernel_gradient,
    "transposed": transposed_kernel_gradient,
    "xcols": xcols_kernel_gradient,
    "depthwise": depthwise.kernel_gradient,
    "folded": folded.kernel_gradient,
    "few_images": few_images_kernel_gradient,
    "rows": rows_kernel_gradient,
    "winograd": winograd.kernel_gradient,
    "winograd_small": partial(winograd.kernel_gradient, tile=winograd.SMALL_TILE),
    "rounded": rounded.kernel_gradient,
    "rounded_pointwise": rounded.pointwise_kernel_gradient,
}


def ungrouped(case: Case) -> bool:
    """Whether all channels are convolved together."""
    return case.geometry.groups == 1


def undilated(case: Case) -> bool:
    """Whether, besides, no pixels are spread: strides at most."""
    return ungrouped(case) and case.geometry.dilation == (1, 1)


FITS: Mapping[str, Callable[[Case], bool]] = {
    "im2col": ungrouped,
    "xcols": ungrouped,
    "columns": ungrouped,
    "transposed": ungrouped,
    "few_images": ungrouped,
    "rows": undilated,
    "depthwise": depthwise.fits,
    "folded": folded.fits,
    "blocked": lambda case: blocked.fits(case.geometry),
    "phases": undilated,
    "winograd": lambda case: winograd.fits(case.geometry),
    "winograd_small": lambda case: winograd.fits(case.geometry),
    "rounded": ungrouped,
    "rounded_pointwise": lambda case: ungrouped(case) and case.geometry.window == (1, 1),
}
"""Which convolutions a formulation can compute; all where it is not named here."""


class ConvolutionPlan(NamedTuple):
    """Names of the formulations of the three maps, and how several clients are run: `loop`, or `batch`
    (`jax.vmap`)."""

    forward: str
    input_gradient: str
    kernel_gradient: str
    clients: str


LIBRARY = ConvolutionPlan("library", "library", "library", "batch")
IM2COL = ConvolutionPlan("im2col", "im2col", "xcols", "batch")
WINOGRAD = ConvolutionPlan("winograd", "winograd", "winograd", "batch")
ROUNDED = ConvolutionPlan("rounded", "rounded", "rounded", "loop")
WINOGRAD_SMALL = ConvolutionPlan("winograd_small", "winograd_small", "winograd_small", "loop")
IMAGE_CHANNELS = 4
"""Number of channels up to which an input counts as an image."""
FEW_PIXELS = 1024
"""Number of output pixels in a batch up to which a kernel of many channels is large in comparison."""
LARGE_OUTPUT = 256
"""Number of output pixels of an image from which its kernel gradient is faster computed separately."""


def cpu_plan(case: Case) -> ConvolutionPlan:
    """The measured choice for XLA:CPU."""
    geometry = case.geometry
    if depthwise.fits(case):
        return ConvolutionPlan("depthwise", "depthwise", "depthwise", "loop")
    if geometry.groups > 1:
        return ConvolutionPlan("shift", "shift", "shift", "loop")
    if geometry.pointwise:  # im2col is then a plain matrix product
        return ConvolutionPlan("im2col", "im2col", "xcols", "loop")
    if geometry.window == (1, 1):
        return ConvolutionPlan("im2col", "columns", "xcols", "loop")
    if winograd.fits(geometry) and winograd.winograd_pays(case):
        return WINOGRAD._replace(clients="loop")
    if winograd.fits(geometry) and winograd.winograd_pays(case, winograd.SMALL_TILE):
        return WINOGRAD_SMALL
    if case.inputs <= IMAGE_CHANNELS:
        return image_plan(case)
    if min(geometry.out()) < max(geometry.window):  # XLA's own is up to 70 times slower there
        return ConvolutionPlan("im2col", "columns", kernel_gradient(case), "loop")
    return ConvolutionPlan("library", input_gradient(case), kernel_gradient(case), "loop")


def image_plan(case: Case) -> ConvolutionPlan:
    """`cpu_plan` for images, which have few channels."""
    if folded.fits(case):
        return ConvolutionPlan("folded", "library", "folded", "loop")
    forward = "blocked" if blocked.fits(case.geometry) and blocked.blocked_pays(case) else "library"
    return ConvolutionPlan(forward, "library", "few_images", "loop")


def input_gradient(case: Case) -> str:
    """The formulation of the direct sum's input gradient for inputs with more channels than images."""
    kh, kw = case.geometry.window
    if case.pixels <= min(FEW_PIXELS, case.inputs * kh * kw):
        return "columns"
    return "phases" if max(case.geometry.strides) > 1 and undilated(case) else "library"


def kernel_gradient(case: Case) -> str:
    """The formulation of the direct sum's kernel gradient for inputs with more channels than images."""
    if undilated(case) and case.pixels >= LARGE_OUTPUT * case.batch:
        return "rows"
    return "transposed" if case.geometry.plain else "shift"


def bfloat16_plan(case: Case, having: frozenset[str]) -> ConvolutionPlan:
    """The choice for XLA:CPU where operands may be rounded to bfloat16, by the processor's instructions: with AMX,
    products of rounded operands instead of direct sums, else the float32 choice.

    With AVX-512's instructions, whose products are twice as fast as float32's, whole networks gain nothing: what has to
    be moved and rounded costs as much (docs/measurements.md). With AMX a single layer gained (4.1 instead of 8.0 ms
    forward); whole networks are not measured there. Winograd's algorithm stays in float32: it has a quarter of the
    multiplications, and in bfloat16 errors of 6 % of the largest output.
    """
    plan, geometry = cpu_plan(case), case.geometry
    if AMX not in having or case.inputs <= IMAGE_CHANNELS or not geometry.plain:
        return plan
    if geometry.pointwise:
        return ConvolutionPlan("rounded", "rounded", "rounded_pointwise", plan.clients)
    return ROUNDED if plan.forward == "library" else plan


def im2col_plan(case: Case) -> ConvolutionPlan:
    """Matrix products everywhere."""
    return IM2COL if ungrouped(case) else ConvolutionPlan("shift", "shift", "shift", "batch")


def winograd_plan(case: Case) -> ConvolutionPlan:
    """Winograd's algorithm wherever it can be used."""
    return WINOGRAD if winograd.fits(case.geometry) else LIBRARY


def cuda_plan(case: Case) -> ConvolutionPlan:
    """The measured choice for a GPU: matrix products, batched over clients. cuDNN, which runs a group for each client,
    took half as long again for hFedF's network and was 7 % faster, in twice the memory, for AlexNet at 224 pixels."""
    return IM2COL if ungrouped(case) else LIBRARY


PLANS: Mapping[str, Callable[[Case], ConvolutionPlan]] = {
    "cpu": cpu_plan,
    "cuda": cuda_plan,
    "library": lambda case: LIBRARY,
    "im2col": im2col_plan,
    "winograd": winograd_plan,
    "bfloat16": lambda case: bfloat16_plan(case, instructions()),
}


def chosen_plan(plan: ConvolutionPlan | str, case: Case) -> ConvolutionPlan:
    """`plan` itself, or the plan that the entry of `PLANS` of that name picks for a convolution.

    Raises:
      ValueError: a formulation of `plan` cannot compute this convolution.
    """
    if isinstance(plan, str):
        return lookup("convolution plan", plan, PLANS)(case)
    unfit = [name for name in plan[:3] if name in FITS and not FITS[name](case)]
    if unfit:
        raise ValueError(f"conv2d got {plan}, but '{unfit[0]}' cannot compute {case}; expected a name in PLANS")
    return plan
