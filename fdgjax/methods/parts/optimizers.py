"""Optimisers made from hyperparameters."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import PyTree
from fdgjax.methods.parts.hyper import SCHEDULES, ClientHyper, learning_rate_factor
from fdgjax.utils.errors import UserError, unknown
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten, unflatten


def client_optimizer(
    h: ClientHyper,
    rounds: int,
    watch: optax.GradientTransformation | None = None,
    change: Callable[[optax.GradientTransformation], optax.GradientTransformation] | None = None,
) -> optax.GradientTransformation:
    """The local optimiser: clipped gradient, weight decay, the named optax optimiser, and the learning rate's change
    over the `rounds`; each only if it has an effect.

    Args:
      h, rounds: hyperparameters, and the experiment's rounds.
      watch: receives the clipped gradients (see `sum_gradients`).
      change: applied to the chain of all steps after the clipping; its result replaces them.

    Raises:
      UserError: unknown optimiser or schedule.
    """
    lookup("client_schedule", h.client_schedule, SCHEDULES)
    steps = [optax.clip_by_global_norm(h.client_clip)] if h.client_clip else []
    steps += [watch] if watch else []
    own: list[optax.GradientTransformation] = [
        optimizer(
            h.client_optimizer,
            learning_rate=h.client_learning_rate,
            weight_decay=h.client_weight_decay,
            momentum=h.client_momentum,
        )
    ]
    changes = h.client_learning_rate_decay != 1 or h.client_schedule != "constant"
    own += [scale_by_progress(lambda done: learning_rate_factor(h, done, rounds))] if changes else []
    steps += [change(optax.chain(*own))] if change else own
    return lenient(optax.chain(*steps)) if len(steps) > 1 else steps[0]


class GradientSum(NamedTuple):
    """The sum of the gradients of all of the round's steps so far, and the round."""

    gradient_sum: PyTree
    round: jax.Array


def sum_gradients() -> optax.GradientTransformationExtraArgs:
    """Leaves gradients as they are and adds them up; `optax.tree.get(state, "gradient_sum")` is the sum. It restarts in
    each round, even if the optimiser's state is kept between rounds."""

    def update(
        updates: PyTree, state: GradientSum, params: PyTree | None = None, *, round: jax.Array, **others: Any
    ) -> tuple[PyTree, GradientSum]:
        del params, others
        same = state.round == round
        total = jax.tree.map(lambda s, g: jnp.where(same, s, 0) + g, state.gradient_sum, updates)
        return updates, GradientSum(total, round)

    def init(params: PyTree) -> GradientSum:
        return GradientSum(optax.tree.zeros_like(params), jnp.zeros((), jnp.int32))

    return optax.GradientTransformationExtraArgs(init, update)


class Renewed(NamedTuple):
    """The state of an optimiser, and whether it has been reset."""

    inner: PyTree
    renewed: jax.Array


def renewed(optimizer: optax.GradientTransformation, at: int) -> optax.GradientTransformationExtraArgs:
    """The optimiser, whose state is reset at the first step of round `at` (or of the first one after it).

    DomainBed does so when a penalty's weight jumps, as the moments so far belong to another loss.
    """
    flexible = optax.with_extra_args_support(optimizer)

    def update(
        updates: PyTree, state: Renewed, params: PyTree | None = None, *, round: jax.Array, **others: Any
    ) -> tuple[PyTree, Renewed]:
        now = (round >= at) & ~state.renewed
        inner = optax.tree.where(now, flexible.init(params), state.inner)
        updates, inner = flexible.update(updates, inner, params, round=round, **others)
        return updates, Renewed(inner, state.renewed | now)

    def init(params: PyTree) -> Renewed:
        return Renewed(flexible.init(params), jnp.zeros((), bool))

    return optax.GradientTransformationExtraArgs(init, update)


def scale_by_progress(factor_of: Callable[[jax.Array], jax.Array]) -> optax.GradientTransformationExtraArgs:
    """Updates times a factor of the rounds and epochs done, which come as the extra argument `done`."""

    def update(
        updates: PyTree, state: PyTree, params: PyTree | None = None, *, done: jax.Array, **others: Any
    ) -> tuple[PyTree, PyTree]:
        del params, others
        factor = factor_of(done)
        return jax.tree.map(lambda u: (factor * u).astype(u.dtype), updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def optimizer(
    name: str, *, learning_rate: float, weight_decay: float = 0.0, momentum: float = 0.0
) -> optax.GradientTransformation:
    """Any optax optimiser by name.

    Weight decay is that of the optimiser where it has one, such as AdamW's, which is no part of the gradient; before
    others it is an L2 gradient `weight_decay * w`.

    Raises:
      UserError: no optax optimiser of that name, one that needs more than gradients, one that draws noise, or a
        momentum for one that takes none.
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
    takes = accepted[name]
    if "seed" in takes:
        raise UserError(
            f"optimizer '{name}' draws noise from a seed of its own, the same for every client and in every round; "
            "expected one without, such as sgd; config.privacy adds noise that protects"
        )
    if momentum and "momentum" not in takes:
        raise UserError(f"optimizer '{name}' takes no momentum, got {momentum}; expected 0 or an optimizer like sgd")
    # Without a momentum most keep no state for it; the others have one of their own unless they are given 0.
    switched_off = "momentum" in takes and takes["momentum"].default in (None, 0)
    extra = {"momentum": momentum} if "momentum" in takes and (momentum or not switched_off) else {}
    extra |= {"weight_decay": weight_decay} if "weight_decay" in takes else {}
    base = getattr(optax, name)(learning_rate=learning_rate, **extra)
    as_gradient = weight_decay and "weight_decay" not in takes
    whole = lenient(optax.chain(optax.add_decayed_weights(weight_decay), base) if as_gradient else base)
    if not takes_gradients(whole):
        raise UserError(
            f"optimizer '{name}' needs more than gradients, such as the loss along a line; expected one that takes "
            "gradients alone, such as sgd or adam"
        )
    return whole


class Moments(NamedTuple):
    """Running means of gradients and of their squares."""

    first: PyTree
    second: PyTree


SECOND_MOMENTS: Mapping[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "adagrad": lambda v, square: v + square,
    "adam": lambda v, square: 0.99 * v + 0.01 * square,
    "yogi": lambda v, square: v - 0.01 * square * jnp.sign(v - square),
}
"""v_t of v_{t-1} and g_t^2, by the name of the adaptive optimiser."""


def adaptive(name: str, *, learning_rate: float, epsilon: float) -> optax.GradientTransformation:
    r"""FedAdagrad, FedAdam or FedYogi, without correction of the moments' bias:

        m_t = beta m_{t-1} + (1 - beta) g_t,    w <- w - rate m_t / (sqrt(v_t) + tau)

    with m_0 = 0, v_0 = tau^2, beta 0 for `adagrad` and 0.9 for others, and v_t by `SECOND_MOMENTS`. optax's optimisers
    of these names are those of training by minibatches, whose tau is too small for the mean of the clients' updates.

    Args:
      name: an entry of `SECOND_MOMENTS`.
      learning_rate: the rate.
      epsilon: tau, the degree of adaptivity.

    References:
      Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """
    beta, second_of = 0.0 if name == "adagrad" else 0.9, SECOND_MOMENTS[name]

    def init(params: PyTree) -> Moments:
        return Moments(
            optax.tree.zeros_like(params), jax.tree.map(lambda leaf: jnp.full_like(leaf, epsilon**2), params)
        )

    def update(updates: PyTree, state: Moments, params: PyTree | None = None) -> tuple[PyTree, Moments]:
        del params
        first = optax.tree.update_moment(updates, state.first, beta, 1)
        second = jax.tree.map(lambda v, g: second_of(v, jnp.square(g)), state.second, updates)
        steps = jax.tree.map(lambda m, v: -learning_rate * m / (jnp.sqrt(v) + epsilon), first, second)
        return steps, Moments(first, second)

    return optax.GradientTransformation(init, update)


def trained_where(
    chosen: Callable[[str], bool], transformation: optax.GradientTransformation
) -> optax.GradientTransformation:
    """The transformation for the parameters at the chosen paths; the others stay."""

    def labels(params: PyTree) -> PyTree:
        return unflatten({path: "moves" if chosen(path) else "stays" for path in flatten(params)})

    return optax.partition({"moves": transformation, "stays": optax.set_to_zero()}, labels)


def takes_gradients(transformation: optax.GradientTransformation) -> bool:
    """Whether an optimiser needs gradients and parameters alone; `lbfgs` also wants the loss and its function."""
    params = {"w": jax.ShapeDtypeStruct((2, 2), jnp.float32)}
    try:
        jax.eval_shape(lambda w: transformation.update(w, transformation.init(w), w), params)
    except TypeError as error:
        if "required keyword-only" in str(error):
            return False
        raise
    return True


def lenient(transformation: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """The transformation, made to work under `jax_numpy_dtype_promotion=strict`, where optax's mixing of floats and
    step counts fails."""
    flexible = optax.with_extra_args_support(transformation)

    def update(updates: PyTree, state: PyTree, params: PyTree | None = None, **others: Any) -> tuple[PyTree, PyTree]:
        with jax.numpy_dtype_promotion("standard"):
            return flexible.update(updates, state, params, **others)

    return optax.GradientTransformationExtraArgs(transformation.init, update)
