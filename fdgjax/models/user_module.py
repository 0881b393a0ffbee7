"""User-defined networks as entries of the registry: any Flax module, linen or nnx."""

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
from flax import nnx, traverse_util
from flax.errors import InvalidRngError

from fdgjax.models import Backbone
from fdgjax.models.program_text import attributes_text, field_values, program_text
from fdgjax.models.stages import ALL_STAGES, StageRange
from fdgjax.models.units import Unit
from fdgjax.utils.errors import UserError

Network = nn.Module | Callable[[int], nn.Module]
"""A linen module, `flax.nnx.bridge.to_linen(...)` of an nnx one, or a function from the number of outputs to either."""

MODES: Mapping[str, bool] = {
    "train": True,
    "training": True,
    "is_training": True,
    "deterministic": False,
    "use_running_average": False,
}
"""Arguments by which a module is told whether it trains, with their value in training."""


class Given(nn.Module):
    """A user-defined module, called as `module(images, train=...)`, or by the other arguments of `MODES` that it takes.

    Its variables keep their paths. Methods that need features use the array that it sows as `features`.

    Attributes:
      module: the user's module.
      outputs: the number of outputs that it must return for an image.
    """

    module: nn.Module
    outputs: int

    def setup(self) -> None:
        """Shares the module's scope, so that the wrapper does not appear in paths of variables."""
        nn.share_scope(self, self.module)

    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Images -> logits `[batch, outputs]`.

        Raises:
          UserError: a result of another shape, or a stream of random numbers that there is none of.
        """
        try:
            y = self.module(x, **mode_arguments(called_first(self.module), train))
        except InvalidRngError as error:
            raise UserError(
                f"the model {type(self.module).__name__} draws random numbers from a stream that it is not given "
                f"({str(error).partition(' (http')[0]}); expected the stream 'dropout', such as "
                "self.make_rng('dropout'), and in evaluation none"
            ) from error
        if getattr(y, "shape", None) != (len(x), self.outputs):
            got = f"shape {list(y.shape)}" if hasattr(y, "shape") else type(y).__name__
            raise UserError(
                f"the model {type(self.module).__name__} gave {got} for images {list(x.shape)}; expected "
                f"{[len(x), self.outputs]}, a number for each class (or what the method's head starts from); give a "
                "function of that number, such as model=lambda outputs: MyNet(outputs)"
            )
        return y


class FromNNX(nn.Module):
    """An nnx module as a linen one, like `flax.nnx.bridge.ToLinen`, but it is also set to training or evaluation mode,
    and indices of layers in lists become strings, since variables are named by paths here.

    Attributes:
      make: makes the module from `rngs`.
    """

    make: Callable[..., nnx.Module]

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """The module's result, in training or evaluation mode."""
        keys = {name: self.make_rng(name) for name in ("params", "dropout") if self.has_rng(name)}
        # In evaluation there is no key: the variables drawn here are replaced below, other draws are not used.
        module = self.make(rngs=nnx.Rngs(next(iter(keys.values()), jax.random.key(0)), **keys))
        (module.train if train else module.eval)()
        if not self.is_initializing():
            kept = {of: traverse_util.flatten_dict(tree) for of, tree in self.variables.items()}
            held = {path: leaf.replace(kept[kind(leaf)][path_words(path)]) for path, leaf in variables_of(module)}
            nnx.update(module, nnx.from_flat_state(held))
        y: jax.Array = module(x, **mode_arguments(called_first(module), train))
        found: dict[str, dict[tuple[str, ...], Any]] = {}
        for path, leaf in variables_of(module):
            found.setdefault(kind(leaf), {})[path_words(path)] = leaf.get_value()
        for of, leaves in found.items():
            if self.is_mutable_collection(of):
                for name, value in traverse_util.unflatten_dict(leaves).items():
                    self.put_variable(of, name, value)
        return y


def variables_of(module: nnx.Module) -> list[tuple[tuple[Any, ...], Any]]:
    """The variables of an nnx module by path, without its random streams."""
    return list(nnx.to_flat_state(nnx.state(module, nnx.Not(nnx.RngState))))


def kind(leaf: Any) -> str:
    """The linen collection of an nnx variable: `params`, `batch_stats`, ..."""
    return str(nnx.variable_name_from_type(type(leaf), allow_register=True))


def path_words(path: tuple[Any, ...]) -> tuple[str, ...]:
    """The path with indices of layers in lists as strings."""
    return tuple(map(str, path))


def called_first(module: nn.Module | nnx.Module) -> Callable[..., Any]:
    """The function that gets a module's arguments: its own, or where layers follow each other that of the first one,
    which alone gets them."""
    if type(module).__call__ not in (nn.Sequential.__call__, nnx.Sequential.__call__):
        return type(module).__call__
    chain: Any = module
    first = next(iter(chain.layers), None)
    return called_first(first) if isinstance(first, nn.Module | nnx.Module) else first or type(module).__call__


def mode_arguments(function: Callable[..., Any], train: bool) -> dict[str, bool]:
    """The keyword arguments that tell a function whether it trains: `train` if it names that, else those of `MODES`
    that it names, else `train` if it takes any keyword."""
    parameters = inspect.signature(function).parameters
    named = [name for name in MODES if name in parameters]
    if "train" in named or (not named and any(p.kind is p.VAR_KEYWORD for p in parameters.values())):
        return {"train": train}
    return {name: MODES[name] == train for name in named}


def backbone_of(network: Network) -> Backbone:
    """The registry's entry of a user-defined network, which has one width, no stages and no replaceable units.

    Raises:
      UserError: neither a module nor a function that makes one; when it is used, a width, units, stages or a number of
        outputs that it does not have.
    """
    _ = made_by(network, 2)

    def make(classes: int, width: float = 1.0, unit: Unit | None = None, part: StageRange = ALL_STAGES) -> nn.Module:
        if unit is not None or width != 1 or part != ALL_STAGES:
            asked = "no units to replace" if unit is not None else "one width" if width != 1 else "no stages"
            raise UserError(
                f"the model is a module of one's own, which has {asked}; expected config.model.width=1, no "
                "config.model.unit and a method that needs none (FDSE and FedFA do), or a model that `fdgjax models` "
                "lists"
            )
        return Given(as_linen(made_by(network, classes)), classes)

    return Backbone(make, "of one's own")


def made_by(network: Network, outputs: int) -> nn.Module:
    """The module itself, or the one that the function makes; raises like `backbone_of`."""
    if isinstance(network, nnx.Module) or (isinstance(network, type) and issubclass(network, nnx.Module)):
        raise UserError(
            "model got an nnx module; expected it through Flax's bridge, which initialises it for each seed: "
            "model=flax.nnx.bridge.to_linen(MyNet, ...), without its rngs"
        )
    if not isinstance(network, nn.Module) and not callable(network):
        raise UserError(f"model got {type(network).__name__}; expected a Flax module, or a function that makes one")
    function: Any = network
    if not isinstance(network, nn.Module) and not takes_a_number(function):
        kind, name = "class" if isinstance(network, type) else "function", getattr(network, "__name__", "")
        raise UserError(
            f"model got the {kind} {name}, which cannot be called with the number of outputs alone; expected a module, "
            "such as model=MyNet(...), or a function of that number, such as model=lambda outputs: MyNet(outputs)"
        )
    made = network if isinstance(network, nn.Module) else function(outputs)
    if not isinstance(made, nn.Module):
        raise UserError(
            f"the function model gave {type(made).__name__}; expected a linen module, or an nnx one through "
            "flax.nnx.bridge.to_linen"
        )
    return made


def takes_a_number(function: Callable[..., Any]) -> bool:
    """Whether a function, or a class of modules, can be called with one number; True where Python cannot tell."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function written in C
        return True
    # Linen modules take these two by keyword alone, whatever their signature says.
    of_linen = ("parent", "name") if isinstance(function, type) and issubclass(function, nn.Module) else ()
    own = [one for name, one in signature.parameters.items() if name not in of_linen]
    try:
        signature.replace(parameters=own).bind(1)
    except TypeError:
        return False
    return True


def as_linen(module: nn.Module) -> nn.Module:
    """The module; one made by Flax's bridge becomes a `FromNNX`."""
    if not isinstance(module, nnx.bridge.ToLinen):
        return module

    cls: Any = module.nnx_class

    def make(rngs: nnx.Rngs) -> Any:
        return cls(*module.args, **module.kwargs, **({} if module.skip_rng else {"rngs": rngs}))

    return FromNNX(make)


def module_name(network: Network) -> str:
    """A name that changes with the module's attributes, and with the text of its class and of what the class names in
    its own file, constants included (`fdgjax.models.program_text`): `MyNet-` and 8 hexadecimal digits."""
    made = made_by(network, 2)
    bridged = isinstance(made, nnx.bridge.ToLinen)
    kind: Any = made.nnx_class if bridged else type(made)
    attributes = [made.args, made.kwargs] if bridged else field_values(made)
    seen = set[int]()
    program = [*program_text(kind, kind.__module__, seen), *attributes_text(attributes, seen)]
    # A function's address differs from process to process.
    words = re.sub(r" at 0x[0-9a-f]+", "", repr(made)) + "".join(program)
    title = re.sub(r"\W", "", getattr(kind, "__name__", ""), flags=re.ASCII) or "model"
    return f"{title}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"
