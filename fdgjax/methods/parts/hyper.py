"""Hyperparameters as typed data, each with a default and a search range."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


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
    when: When | None = None,
) -> Any:
    """A dataclass field with a default, the values a search would try, and where both come from.

    A number is finite, from `least` to `most` and larger than `above`. A string is one of those of `search`, unless
    they are only `examples`. A search varies it only under the condition `when`.
    """
    metadata = {"search": tuple(search), "source": source, "bounds": Bounds(least, most, above), "examples": examples}
    return dataclasses.field(default=default, metadata=metadata | {"when": when})


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
        if isinstance(value, str) and not field.metadata["examples"]:
            lookup(f"config.method.{field.name}", value, dict.fromkeys(field.metadata["search"]))
        if isinstance(value, int | float) and not bounds.hold(value):
            raise UserError(f"config.method.{field.name} got {value}; expected {bounds}, such as {field.default}")


TABLE_10 = "hFedF v2, Table 10"
LEARNING_RATES = (1e-3, 1e-4, 1e-5)
SERVER_LEARNING_RATES = (1e-1, 1e-2, 1e-3)
FDSE_LEARNING_RATES = (0.001, 0.01, 0.05, 0.1, 0.5)


@dataclasses.dataclass(frozen=True)
class ClientHyper:
    """The method's name, and the local optimiser, common to all methods.

    name: an entry of `fdgjax.methods.METHODS`.
    client_optimizer: any optax optimiser that takes a learning rate. The papers name none; a learning rate of 1e-3
      with weight decay suggests Adam.
    client_learning_rate: of the local optimiser.
    client_weight_decay: added to the gradient (an L2 penalty), as PyTorch's optimisers do.
    client_momentum: for optimisers that take one.
    client_learning_rate_decay: factor on the learning rate after every round.
    client_schedule: another factor on the learning rate, over all rounds: `constant` or `cosine`, an entry of
      `SCHEDULES`.
    client_clip: largest norm of the gradient, over all parameters and before weight decay; 0 does not clip.
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
    client_schedule: str = hyper("constant", search=("constant", "cosine"), source="UAP, section 5: cosine")
    client_clip: float = hyper(0.0, search=(0.0, 10.0), source="FDSE, A7.4: 10")


SCHEDULES: Mapping[str, Callable[[jax.Array, int], jax.Array]] = {
    "constant": lambda done, rounds: jnp.ones_like(done),
    "cosine": lambda done, rounds: 0.5 * (1 + jnp.cos(jnp.pi * (done / rounds))),
}
"""Factors on the learning rate, from the number of finished rounds, float32, and of all rounds."""


def learning_rate_factor(h: ClientHyper, round_: jax.Array, rounds: int) -> jax.Array:
    """What the client's learning rate is multiplied by in a round (from 0) of `rounds`, float32."""
    done = round_.astype(jnp.float32)
    decay = jnp.power(jnp.float32(h.client_learning_rate_decay), done)
    return decay * SCHEDULES[h.client_schedule](done, rounds)
