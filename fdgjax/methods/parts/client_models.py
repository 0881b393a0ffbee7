"""Which model a client is judged by: what it would start the next round from, or what it trained last."""

from collections.abc import Callable, Mapping

import jax

from fdgjax.contract import Method
from fdgjax.methods.parts.extend import Row, extend


def as_received(method: Method) -> Method:
    """The method as it is: a client is predicted by what the server and its own row make of the last round."""
    return method


def as_trained(method: Method) -> Method:
    """The method with each client predicted by the model it trained last, before anything was aggregated.

    So FLGo, the framework of FDSE's official code, judges clients that have a model of their own; others are judged by
    the global model, and the method is left as it is. Training and messages do not change.
    """
    own = method.trained
    if own is None:
        return method
    row = Row(
        begin=lambda fresh: jax.vmap(method.predict, in_axes=(None, 0), axis_size=len(fresh.federation.ids))(
            fresh.server, fresh.clients
        ),
        after=lambda context, trained: own(trained.variables),
    )
    extended = extend(method, row=row)
    return extended._replace(predict=lambda server, row: row.more)


CLIENT_MODELS: Mapping[str, Callable[[Method], Method]] = {"received": as_received, "trained": as_trained}
