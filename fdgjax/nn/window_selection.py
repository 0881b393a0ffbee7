"""Max-pooling with a stride of one: which pixel each window takes, and the linear map that follows it.

With `k(j)` the place of the first largest pixel in window `j`, counted in reading order, the derivative of the pool is
one linear map and its gradient the transpose of that map:

    take(t)[j] = t[j + k(j)]          give(g)[p] = sum_k [k(p - k) = k] g[p - k]

Both are primitives, each the transpose of the other, with `k` as an array of bytes. Autodiff of the maximum over
shifted images would add up as many padded arrays as a window has pixels; `give` reads two, the gradients and the
places. Any leading axes: `[..., H, W, channels]`.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fdgjax.nn.windows import Pads, Pair

MOST = np.iinfo(np.int8).max
"""The largest number of pixels of a window: a byte can count no more."""


class Windows(NamedTuple):
    """The static parameters of a pool with a stride of one; hashable."""

    size: Pair
    window: Pair
    pads: Pads

    def out(self) -> Pair:
        """Height and width of the output."""
        height, width = (n + sum(pads) - k + 1 for n, k, pads in zip(*self, strict=True))
        return height, width

    def places(self) -> list[Pair]:
        """Row and column of each pixel of a window, in reading order."""
        return [(i, j) for i in range(self.window[0]) for j in range(self.window[1])]

    def transposed_pads(self) -> Pads:
        """The padding of the transposed map, so that every input pixel sees all windows that could take it."""
        rows, columns = ((k - 1 - lo, k - 1 - hi) for k, (lo, hi) in zip(self.window, self.pads, strict=True))
        return rows, columns


def first_largest_place(x: jax.Array, windows: Windows) -> tuple[jax.Array, jax.Array]:
    """The maximum of each window and its place: `[..., H', W', channels]` each."""
    parts = _shifted(_filled(x, windows.pads, -jnp.inf), windows.places(), windows.out())
    largest, place = parts[0], jnp.zeros(parts[0].shape, jnp.int8)
    for k, part in enumerate(parts[1:], start=1):
        place = jnp.where(part > largest, jnp.int8(k), place)
        largest = jnp.maximum(largest, part)
    return largest, place


def take_pixels(t: jax.Array, place: jax.Array, windows: Windows) -> jax.Array:
    """The pixel of `t [..., H, W, channels]` that each window takes: `[..., H', W', channels]`."""
    return take_p.bind(t, place, windows=windows)


def give(g: jax.Array, place: jax.Array, windows: Windows) -> jax.Array:
    """The transpose of `take_pixels`: `[..., H', W', channels]` -> `[..., H, W, channels]`."""
    return give_p.bind(g, place, windows=windows)


def _take(t: jax.Array, place: jax.Array, windows: Windows) -> jax.Array:
    parts = _shifted(_filled(t, windows.pads, 0), windows.places(), windows.out())
    return _sum_where(parts, [place] * len(parts))


def _give(g: jax.Array, place: jax.Array, windows: Windows) -> jax.Array:
    pads, (kh, kw) = windows.transposed_pads(), windows.window
    starts = [(kh - 1 - i, kw - 1 - j) for i, j in windows.places()]
    return _sum_where(*(_shifted(_filled(a, pads, fill), starts, windows.size) for a, fill in ((g, 0), (place, -1))))


def _sum_where(parts: list[jax.Array], places: list[jax.Array]) -> jax.Array:
    """The sum over `k` of `parts[k]` where `places[k]` is `k`."""
    zero = jnp.zeros((), parts[0].dtype)
    return reduce(jnp.add, [jnp.where(place == k, parts[k], zero) for k, place in enumerate(places)])


def _filled(x: jax.Array, pads: Pads, fill: float) -> jax.Array:
    """`x` padded by `pads` pixels of `fill` (cropped where negative), materialised once: fused into its consumers, a
    CPU would test for each pixel and each shift whether it is inside."""
    edges = [*[(0, 0, 0)] * (x.ndim - 3), *((*pad, 0) for pad in pads), (0, 0, 0)]
    return lax.optimization_barrier(lax.pad(x, jnp.asarray(fill, x.dtype), edges))


def _shifted(x: jax.Array, starts: list[Pair], size: Pair) -> list[jax.Array]:
    """The images of `size` that begin at each of `starts`."""
    return [x[..., i : i + size[0], j : j + size[1], :] for i, j in starts]


def _primitive(name: str, compute: Callable[..., jax.Array], result: Callable[[Windows], Pair]) -> Primitive:
    """A primitive with its shape rule and its lowering."""

    def shape(x: Any, place: Any, *, windows: Windows) -> Any:
        return x.update(shape=(*x.shape[:-3], *result(windows), x.shape[-1]))

    primitive = Primitive(f"fdgjax_{name}")
    primitive.def_impl(jax.jit(compute, static_argnames="windows"))
    primitive.def_abstract_eval(shape)
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))
    return primitive


take_p = _primitive("take", _take, Windows.out)
give_p = _primitive("give", _give, lambda windows: windows.size)


def _jvp(primitive: Primitive, primals: Any, tangents: Any, *, windows: Windows) -> tuple[jax.Array, jax.Array]:
    """Linear in the first argument; places are whole numbers, which have no derivative."""
    tangent = ad.instantiate_zeros(tangents[0])
    return primitive.bind(*primals, windows=windows), primitive.bind(tangent, primals[1], windows=windows)


def _transpose(other: Primitive, cotangent: Any, x: Any, place: jax.Array, *, windows: Windows) -> tuple[Any, None]:
    """The other primitive."""
    if isinstance(cotangent, ad.Zero):
        return ad.Zero(x.aval), None
    return other.bind(cotangent, place, windows=windows), None


def _batch(primitive: Primitive, operands: Any, axes: Any, *, windows: Windows) -> tuple[jax.Array, int]:
    """One more leading axis, which both arguments get."""
    size = next(a.shape[axis] for a, axis in zip(operands, axes, strict=True) if axis is not None)
    moved = [
        jnp.broadcast_to(a, (size, *a.shape)) if axis is None else jnp.moveaxis(a, axis, 0)
        for a, axis in zip(operands, axes, strict=True)
    ]
    return primitive.bind(*moved, windows=windows), 0


for _mine, _other in ((take_p, give_p), (give_p, take_p)):
    ad.primitive_jvps[_mine] = partial(_jvp, _mine)
    ad.primitive_transposes[_mine] = partial(_transpose, _other)
    batching.primitive_batchers[_mine] = partial(_batch, _mine)
