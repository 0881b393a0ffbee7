"""The client axis is an execution choice: the same function over all clients, at once, one by one or in chunks."""

from collections.abc import Callable, Mapping

import jax

from fdgjax.contract import PyTree
from fdgjax.registry import lookup

Over = Callable[[Callable[..., PyTree], int], Callable[..., PyTree]]


def _vmap(function: Callable[..., PyTree], chunk: int) -> Callable[..., PyTree]:
    del chunk
    return jax.vmap(function)


def _map(function: Callable[..., PyTree], chunk: int) -> Callable[..., PyTree]:
    del chunk
    return lambda *rows: jax.lax.map(lambda row: function(*row), rows)


def _chunk(function: Callable[..., PyTree], chunk: int) -> Callable[..., PyTree]:
    return lambda *rows: jax.lax.map(lambda row: function(*row), rows, batch_size=chunk)


def _auto(function: Callable[..., PyTree], chunk: int) -> Callable[..., PyTree]:
    # A CPU gains nothing from a wider program and pays for the padding of short clients.
    return (_map if jax.default_backend() == "cpu" else _vmap)(function, chunk)


CLIENT_AXES: Mapping[str, Over] = {"auto": _auto, "vmap": _vmap, "map": _map, "chunk": _chunk}


def over_clients(function: Callable[..., PyTree], axis: str, chunk: int) -> Callable[..., PyTree]:
    """`function` of one client's rows, as a function of stacked rows `[clients, ...]`.

    Args:
      function: takes and returns pytrees of one client.
      axis: `"vmap"` (all at once), `"map"` (one at a time inside the same program), `"chunk"` (`chunk` at a time) or
        `"auto"` (`map` on a CPU, `vmap` elsewhere). All give the same numbers, to rounding.
      chunk: clients at a time for `"chunk"`.

    Raises:
      UserError: unknown axis.
    """
    return lookup("client_axis", axis, CLIENT_AXES)(function, chunk)
