"""Hyperparameters as typed data: each with a default and a search range, and the optimisers made from them."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import PyTree
from fdgjax.errors import UserError, unknown
from fdgjax.registry import lookup


def hyper(default: Any, *, search: Sequence[Any], source: str) -> Any:
    """A dataclass field with a default, the values a search would try, and where both come from."""
    return dataclasses.field(default=default, metadata={"search": tuple(search), "source": source})


TABLE_10 = "hFedF v2, Table 10"
LEARNING_RATES = (1e-3, 1e-4, 1e-5)
SERVER_LEARNING_RATES = (1e-1, 1e-2, 1e-3)
FDSE_LEARNING_RATES = (0.001, 0.01, 0.05, 0.1, 0.5)


@dataclasses.dataclass(frozen=True)
class ClientHyper:
    """The local optimiser, common to all methods.

    client_optimizer: any optax optimiser that takes a learning rate. The papers name none; a learning rate of 1e-3
      with weight decay suggests Adam.
    client_weight_decay: added to the gradient (an L2 penalty), as PyTorch's optimisers do.
    client_momentum: for optimisers that take one.
    client_learning_rate_decay: factor on the learning rate after every round.
    client_schedule: another factor on the learning rate, over all rounds: `constant` or `cosine`, an entry of
      `SCHEDULES`.
    client_clip: longest gradient, over all parameters and before weight decay; 0 does not clip.
    """

    client_optimizer: str = hyper("adam", search=("adam", "sgd"), source="not named by hFedF; docs/deviations.md")
    client_learning_rate: float = hyper(1e-3, search=LEARNING_RATES, source=TABLE_10)
    client_weight_decay: float = hyper(1e-4, search=LEARNING_RATES, source=TABLE_10)
    client_momentum: float = hyper(0.0, search=(0.0, 0.9), source="pFedHN's official settings: 0.9 with SGD")
    client_learning_rate_decay: float = hyper(1.0, search=(1.0, 0.998, 0.9998), source="FDSE, A7.4 and official code")
    client_schedule: str = hyper("constant", search=("constant", "cosine"), source="UAP, section 5: cosine")
    client_clip: float = hyper(0.0, search=(0.0, 10.0), source="FDSE, A7.4: 10")


SCHEDULES: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "constant": jnp.ones_like,
    "cosine": lambda done: 0.5 * (1 + jnp.cos(jnp.pi * done)),
}
"""Factors on the learning rate by the share of the rounds that is done, from 0 to 1."""


def client_optimizer(
    h: ClientHyper, rounds: int, watch: optax.GradientTransformation | None = None
) -> optax.GradientTransformation:
    """The local optimiser: clipped gradient, weight decay as an L2 gradient, the named optax optimiser, and the
    learning rate's change over the `rounds`; each of them only where it does something. `watch` is shown the clipped
    gradients (see `sum_gradients`).

    Raises:
      UserError: unknown optimiser or schedule.
    """
    steps = [optax.clip_by_global_norm(h.client_clip)] if h.client_clip else []
    steps += [watch] if watch else []
    steps += [
        optimizer(
            h.client_optimizer,
            learning_rate=h.client_learning_rate,
            weight_decay=h.client_weight_decay,
            momentum=h.client_momentum,
        )
    ]
    lookup("client_schedule", h.client_schedule, SCHEDULES)
    changes = h.client_learning_rate_decay != 1 or h.client_schedule != "constant"
    steps += [scale_by_round(lambda round_: learning_rate_factor(h, round_, rounds))] if changes else []
    return lenient(optax.chain(*steps)) if len(steps) > 1 else steps[0]


class GradientSum(NamedTuple):
    """The sum of the gradients of all steps so far."""

    gradient_sum: PyTree


def sum_gradients() -> optax.GradientTransformation:
    """Leaves gradients as they are and adds them up; `optax.tree.get(state, "gradient_sum")` is the sum."""

    def update(updates: PyTree, state: GradientSum, params: PyTree | None = None) -> tuple[PyTree, GradientSum]:
        del params
        return updates, GradientSum(optax.tree.add(state.gradient_sum, updates))

    return optax.GradientTransformation(lambda params: GradientSum(optax.tree.zeros_like(params)), update)


def scale_by_round(factor_of: Callable[[jax.Array], jax.Array]) -> optax.GradientTransformationExtraArgs:
    """Updates times a factor of the round, which comes as an extra argument."""

    def update(
        updates: PyTree, state: PyTree, params: PyTree | None = None, *, round: jax.Array, **others: Any
    ) -> tuple[PyTree, PyTree]:
        del params, others
        factor = factor_of(round)
        return jax.tree.map(lambda u: (factor * u).astype(u.dtype), updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def learning_rate_factor(h: ClientHyper, round_: jax.Array, rounds: int) -> jax.Array:
    """What the client's learning rate is multiplied by in a round (from 0) of `rounds`, float32."""
    done = round_.astype(jnp.float32)
    decay = jnp.power(jnp.float32(h.client_learning_rate_decay), done)
    return decay * SCHEDULES[h.client_schedule](done / rounds)


def optimizer(
    name: str, *, learning_rate: float, weight_decay: float = 0.0, momentum: float = 0.0
) -> optax.GradientTransformation:
    """Any optax optimiser by name, after an L2 gradient `weight_decay * w`.

    Raises:
      UserError: no optax optimiser of that name, or a momentum for one that takes none.
    """
    accepted = {
        key: inspect.signature(value).parameters
        for key, value in vars(optax).items()
        if inspect.isfunction(value)
        and not key.startswith(("_", "scale_by"))
        and "learning_rate" in inspect.signature(value).parameters
    }
    if name not in accepted:
        raise unknown("optimizer", name, accepted)
    extra = {"momentum": momentum} if momentum else {}
    if extra and "momentum" not in accepted[name]:
        raise UserError(f"optimizer '{name}' takes no momentum, got {momentum}; expected 0 or an optimizer like sgd")
    base = getattr(optax, name)(learning_rate=learning_rate, **extra)
    return lenient(optax.chain(optax.add_decayed_weights(weight_decay), base) if weight_decay else base)


def lenient(transformation: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """The same under `jax_numpy_dtype_promotion=strict`, where optax's own mixing of floats and step counts fails."""
    flexible = optax.with_extra_args_support(transformation)

    def update(updates: PyTree, state: PyTree, params: PyTree | None = None, **others: Any) -> tuple[PyTree, PyTree]:
        with jax.numpy_dtype_promotion("standard"):
            return flexible.update(updates, state, params, **others)

    return optax.GradientTransformationExtraArgs(transformation.init, update)
