"""Collections of variables that exist while a client trains, and at no other time."""

import jax
import jax.numpy as jnp

from fdgjax.contract import Context, Method, PyTree, Trained, Variables


def during_training(method: Method, collections: Variables) -> Method:
    """The method whose local training begins with further `collections`, the same for every client and round, which are
    dropped when it ends. The objective sees and changes them; neither the server nor a client's row has them."""
    own = method.trained

    def without(variables: Variables) -> Variables:
        return {name: leaf for name, leaf in variables.items() if name not in collections}

    def finish(context: Context, trained: Trained) -> tuple[PyTree, PyTree]:
        return method.finish(context, trained._replace(variables=without(trained.variables)))

    return method._replace(
        start=lambda sent, client: method.start(sent, client) | jax.tree.map(jnp.asarray, collections),
        finish=finish,
        label=lambda path: "local" if path.partition("/")[0] in collections else method.label(path),
        trained=(lambda variables: own(without(variables))) if own else None,
    )
