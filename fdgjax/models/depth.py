"""The order of a model's layers, for methods that treat them by depth."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
from flax import traverse_util

from fdgjax.utils.errors import UserError, example_of
from fdgjax.utils.random import any_key
from fdgjax.utils.variables import flatten, module_of


def depth_order(init: Callable[[jax.Array], Any]) -> list[str]:
    """The paths of all modules that hold variables themselves, such as `"conv_1/bn_dse"`, in the order of their calls.

    Names and trees do not give this order: JAX sorts the keys of dicts, and `stage_10` comes before `stage_2`. So the
    calls are recorded under `jax.eval_shape`. A module that calls others comes before them, and one that is called
    more than once has the place of its first call. The variables of the model itself have the path `""`.

    Args:
      init: `(key) -> variables` of a model made of Flax modules, such as `fdgjax.contract.Model.init`.

    Raises:
      UserError: `init` makes a variable without a recorded call of its module, for instance because it is jitted and
        was traced before.
    """
    called: list[tuple[str, ...]] = []

    def note(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        if context.method_name != "setup":
            called.append(context.module.path)
        return call(*args, **kwargs)

    def noted(key: jax.Array) -> Any:
        with nn.intercept_methods(note):
            return init(key)

    holders = {path[1:-1] for path in traverse_util.flatten_dict(jax.eval_shape(noted, any_key()))}
    order = [path for path in dict.fromkeys(called) if path in holders]
    if missing := holders - set(order):
        unseen = example_of(sorted("/".join(path) for path in missing))
        raise UserError(
            f"the order of the model's layers is not known: no call of {unseen} was seen; expected linen modules, each "
            "with its own variables; for an nnx model choose a method that does not treat layers by depth"
        )
    return ["/".join(path) for path in order]


def layers(init: Callable[[jax.Array], Any]) -> list[tuple[str, ...]]:
    """A model's layers in the order of their calls, each as the paths of its modules.

    A layer is a module with a kernel. A module without one belongs to the layer before it, as BatchNorm does, or to the
    first layer inside it, or, if there is neither, to the model's first layer. Every variable belongs to one layer.

    Args:
      init: as for `depth_order`.
    """
    shapes = jax.eval_shape(init, any_key())
    kernels = {module_of(path) for path in flatten(shapes) if path.endswith("/kernel")}
    found: list[tuple[str, ...]] = []
    waiting: tuple[str, ...] = ()
    for module in depth_order(init):
        if module in kernels:
            found.append((*waiting, module))
            waiting = ()
        elif found and not any(kernel.startswith(f"{module}/") for kernel in kernels):
            found[-1] = (*found[-1], module)
        else:
            waiting = (*waiting, module)
    return found
