"""Which model predicts for a client: the one that it would start the next round from, or the one it trained last."""

from collections.abc import Callable, Mapping

import jax

from fdgjax.contract import Method
from fdgjax.methods.parts.extend import RowExtension, extend


def as_received(method: Method) -> Method:
    """The method as it is: a client's model combines the server's state and its own row after the last round."""
    return method


def as_trained(method: Method) -> Method:
    """The method with each client evaluated on the model it just trained, before aggregation.

    FLGo, the framework of FDSE's official code, evaluates clients with a model of their own in this way. A method with
    one global model is returned unchanged. Training and messages do not change.
    """
    own = method.trained
    if own is None:
        return method
    row = RowExtension(
        begin=lambda fresh: jax.vmap(method.predict, in_axes=(None, 0), axis_size=len(fresh.federation.ids))(
            fresh.server, fresh.clients
        ),
        after=lambda context, trained: own(trained.variables),
    )
    extended = extend(method, row=row)
    return extended._replace(predict=lambda server, row: row.more)


CLIENT_MODELS: Mapping[str, Callable[[Method], Method]] = {"received": as_received, "trained": as_trained}
