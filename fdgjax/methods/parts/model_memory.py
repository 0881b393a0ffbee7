"""A method whose local training carries more than variables and the optimiser's state from step to step, and from round
to round.

    started_i = (base's started_i, "memory": row_i's memory);    row_i's memory = trained_i's "memory"

The objective reads `variables["memory"]` and returns the new one among its changed collections, as it would return
BatchNorm's statistics. A client's row keeps it, so that a resumed run continues exactly; it never leaves the client,
and no prediction uses it.
"""

from collections.abc import Callable
from typing import Any

from fdgjax.contract import Context, Method, PyTree, Trained, Variables
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, extend

MEMORY = "memory"
"""The collection of variables that holds it."""


def remembering(base: Method, begin: Callable[[Fresh], dict[str, Any]]) -> Method:
    """The base method with a memory at each client.

    Args:
      base: the method that is extended; its `objective` takes and returns the memory.
      begin: the memory before the first round, `(fresh) -> {name: [clients, ...]}`.
    """
    extended = extend(base, row=RowExtension(begin))

    def start(sent: PyTree, client: Extended) -> Variables:
        return {**extended.start(sent, client), MEMORY: client.more}

    def finish(context: Context, trained: Trained) -> tuple[PyTree, Extended]:
        message, row = extended.finish(context, trained._replace(variables=without_memory(trained.variables)))
        return message, row._replace(more=trained.variables[MEMORY])

    def label(path: str) -> str:
        return "local" if path.startswith(f"{MEMORY}/") else extended.label(path)

    return extended._replace(start=start, finish=finish, label=label)


def without_memory(variables: Variables) -> Variables:
    """The model's own variables."""
    return {name: values for name, values in variables.items() if name != MEMORY}
