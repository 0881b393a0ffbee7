"""Hyperparameters as typed data, each with a default and a search range."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.methods.parts.sharpness import KINDS
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


class ByStart(NamedTuple):
    """The values of a hyperparameter that is left open, '', by whether the client model starts from pretrained
    weights."""

    scratch: str
    pretrained: str


class Bounds(NamedTuple):
    """The range of a hyperparameter: finite numbers from `least` to `most`, larger than `above`."""

    least: float = 0.0
    most: float = math.inf
    above: float = -math.inf

    def hold(self, value: float) -> bool:
        """Whether a number is within; NaN and infinity never are."""
        return math.isfinite(value) and self.least <= value <= self.most and value > self.above

    def __str__(self) -> str:
        low = f"above {self.above:g}" if self.above >= self.least else f"from {self.least:g}"
        return f"a number {low}" + (f" to {self.most:g}" if math.isfinite(self.most) else "")


class When(NamedTuple):
    """The condition under which a hyperparameter has an effect, by all of a method's hyperparameters.

    otherwise: what a search sets it to where it has none; None leaves it as it is.
    """

    applies: Callable[[Any], bool]
    otherwise: Any = None


def hyper(
    default: Any,
    *,
    search: Sequence[Any],
    source: str,
    least: float = 0,
    most: float = math.inf,
    above: float = -math.inf,
    examples: bool = False,
    by_start: ByStart | None = None,
    when: When | None = None,
) -> Any:
    """A dataclass field with a default, the values a search would try, and where both come from.

    A number is finite, from `least` to `most` and larger than `above`. A string is one of those of `search`, unless
    they are only `examples`; with `by_start` it may be '', which `settled` replaces. A search varies the field only
    under the condition `when`.

    Raises:
      UserError: a default or a value of `search` that is a number outside the bounds, or of another type than the
        other values; a condition that is no `When`.
    """
    bounds = Bounds(least, most, above)
    if when is not None and not isinstance(when, When):
        raise UserError(f"when of hyper({default!r}, ...) got {when!r}; expected When(lambda h: ..., otherwise=...)")
    for value in (default, *search):
        if kind_of(value) is not kind_of(default):
            raise UserError(
                f"a hyperparameter got {value!r} in hyper({default!r}, search={tuple(search)!r}); expected a "
                f"{kind_of(default).__name__}, as its default is"
            )
        if isinstance(value, int | float) and not bounds.hold(value):
            raise UserError(
                f"a hyperparameter got {value!r} in hyper({default!r}, search={tuple(search)!r}); expected {bounds}; "
                "set other bounds by least, most or above"
            )
    metadata = {"search": tuple(search), "source": source, "bounds": bounds, "examples": examples}
    return dataclasses.field(default=default, metadata=metadata | {"by_start": by_start, "when": when})


def kind_of(value: Any) -> type[Any]:
    """The type of a hyperparameter's values; whole numbers are values of one of floats."""
    return float if type(value) is int else type(value)


def has_effect(h: Any, key: str) -> bool:
    """Whether a hyperparameter has an effect (`When`), by all of a method's hyperparameters."""
    (when,) = (field.metadata.get("when") for field in dataclasses.fields(h) if field.name == key)
    return when is None or bool(when.applies(h))


def settled(h: Any, *, pretrained: bool) -> Any:
    """The hyperparameters with those that are left open as the start of training needs them (`ByStart`).

    Args:
      h: a dataclass of hyperparameters.
      pretrained: whether the client model starts from pretrained weights.
    """
    open_: dict[str, ByStart] = {
        field.name: field.metadata["by_start"]
        for field in dataclasses.fields(h)
        if field.metadata.get("by_start") and getattr(h, field.name) == ""
    }
    chosen = {name: by.pretrained if pretrained else by.scratch for name, by in open_.items()}
    return dataclasses.replace(h, **chosen)


def momentum_of(key: str) -> When:
    """That the optimiser which this key names takes a momentum; 0 for one that takes none."""

    def applies(h: Any) -> bool:
        found = getattr(optax, getattr(h, key), None)
        return found is not None and "momentum" in inspect.signature(found).parameters

    return When(applies, otherwise=0.0)


def check_values(h: Any) -> None:
    """Raises a `UserError` for a hyperparameter that is a number outside its bounds, or an unknown word."""
    for field in dataclasses.fields(h):
        if not field.metadata:
            continue
        value, bounds = getattr(h, field.name), field.metadata["bounds"]
        if field.metadata["by_start"] and value == "":
            continue
        if isinstance(value, str) and not field.metadata["examples"]:
            lookup(f"config.method.{field.name}", value, dict.fromkeys(field.metadata["search"]))
        if isinstance(value, int | float) and not bounds.hold(value):
            raise UserError(f"config.method.{field.name} got {value}; expected {bounds}, such as {field.default}")


TABLE_10 = "hFedF v2, Table 10"
LEARNING_RATES = (1e-3, 1e-4, 1e-5)
SERVER_LEARNING_RATES = (1e-1, 1e-2, 1e-3)
FDSE_LEARNING_RATES = (0.001, 0.01, 0.05, 0.1, 0.5)


def cosine(done: jax.Array, rounds: int) -> jax.Array:
    """From 1 to 0, half a wave."""
    return 0.5 * (1 + jnp.cos(jnp.pi * (done / rounds)))


SCHEDULES: Mapping[str, Callable[[jax.Array, int], jax.Array]] = {
    "constant": lambda done, rounds: jnp.ones_like(done),
    "cosine": lambda done, rounds: cosine(jnp.floor(done), rounds),
    "cosine_epochs": cosine,
    "step": lambda done, rounds: jnp.where(done < 0.8 * rounds, jnp.ones_like(done), 0.1),
}
"""Factors on the learning rate, from the number of finished rounds (float32, finished local epochs included) and of all
rounds: none, a cosine from round to round, a cosine from epoch to epoch, and a tenth after 80 % of all epochs."""

WITHIN_ROUNDS = ("cosine_epochs", "step")
"""The schedules that change from epoch to epoch."""


SHARP = When(lambda h: bool(h.sharpness))
"""That local steps are sharpness-aware."""


@dataclasses.dataclass(frozen=True)
class ClientHyper:
    """The method's name, and the local optimiser, common to all methods.

    name: an entry of `fdgjax.methods.METHODS`.
    client_optimizer: any optax optimiser that takes a learning rate. The papers name none; a learning rate of 1e-3
      with weight decay suggests Adam.
    client_learning_rate: of the local optimiser.
    client_weight_decay: added to the gradient (an L2 penalty), as in PyTorch's optimisers, or the optimiser's own
      weight decay if it has one, as AdamW has.
    client_momentum: for optimisers that take one.
    client_learning_rate_decay: factor on the learning rate after every round.
    client_schedule: another factor on the learning rate, over all rounds: an entry of `SCHEDULES`.
    client_clip: largest norm of the gradient, over all parameters and before weight decay; 0 does not clip.
    keep_optimizer: whether a client's optimiser state, such as its momentum, outlives the round.
    sharpness: radius rho of a sharpness-aware step, whose gradient is taken where the loss near the parameters is
      higher (`fdgjax.methods.parts.sharpness`); 0 for a plain step.
    sharpness_kind: how a sharpness-aware step chooses the point at which it takes the gradient, an entry of
      `fdgjax.methods.parts.sharpness.KINDS`. sharpness_eta: ASAM's eta.
    """

    name: str = ""
    client_optimizer: str = hyper(
        "adam", examples=True, search=("adam", "sgd"), source="not named by hFedF; docs/deviations.md"
    )
    client_learning_rate: float = hyper(1e-3, above=0, search=LEARNING_RATES, source=TABLE_10)
    client_weight_decay: float = hyper(1e-4, search=LEARNING_RATES, source=TABLE_10)
    client_momentum: float = hyper(
        0.0,
        most=1,
        search=(0.0, 0.9),
        source="pFedHN's official settings: 0.9 with SGD",
        when=momentum_of("client_optimizer"),
    )
    client_learning_rate_decay: float = hyper(
        1.0, above=0, search=(1.0, 0.998, 0.9998), source="FDSE, A7.4 and official code"
    )
    client_schedule: str = hyper("constant", search=tuple(SCHEDULES), source="UAP, section 5: cosine")
    client_clip: float = hyper(0.0, search=(0.0, 10.0), source="FDSE, A7.4: 10")
    keep_optimizer: bool = hyper(False, search=(False, True), source="McMahan et al., Algorithm 1: a new optimiser")
    sharpness: float = hyper(0.0, search=(0.0,), source="0 is the method as published")
    sharpness_kind: str = hyper("sam", search=tuple(KINDS), source="SAM: Foret et al., 2021", when=SHARP)
    sharpness_eta: float = hyper(0.01, search=(0.01,), source="Kwon et al., 2021: 0.01", when=SHARP)


def learning_rate_factor(h: ClientHyper, done: jax.Array, rounds: int) -> jax.Array:
    """What the client's learning rate is multiplied by after `done` of `rounds`, float32: 2.4 are two rounds and two of
    five local epochs."""
    decay = jnp.power(jnp.float32(h.client_learning_rate_decay), jnp.floor(done))
    return decay * SCHEDULES[h.client_schedule](done, rounds)
