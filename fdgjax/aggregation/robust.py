"""The robust rules by name: what each takes of a defence's settings, and how many clients it needs."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.centres import centered_clipping, geometric_median
from fdgjax.aggregation.krum import krum, multi_krum
from fdgjax.aggregation.trimmed import median, trimmed_mean
from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError, users_program


class RobustSettings(NamedTuple):
    """Settings of the robust rules.

    hostile: f, the number of hostile clients to withstand. radius: of centered clipping, 0 for the median distance.
    steps: of the iterative rules, 0 for each one's default.
    """

    hostile: int = 1
    radius: float = 0.0
    steps: int = 0


class Robust(NamedTuple):
    """A robust rule.

    apply: `(updates, weights, settings) -> (centre, shares [clients])`.
    least: the fewest clients with which it withstands f hostile ones.
    takes: the settings that it reads, beside `hostile`, by which the clients are counted for every rule.
    """

    apply: Callable[[PyTree, PyTree | None, RobustSettings], tuple[PyTree, PyTree]]
    least: Callable[[int], int]
    takes: tuple[str, ...] = ()


def majority(hostile: int) -> int:
    """More honest clients than hostile ones."""
    return 2 * hostile + 1


def with_neighbours(hostile: int) -> int:
    """Blanchard et al., Proposition 1: 2f + 2 < n."""
    return 2 * hostile + 3


def own_steps(settings: RobustSettings) -> dict[str, int]:
    """The number of steps, where one is set."""
    return {"steps": settings.steps} if settings.steps else {}


ROBUST: Mapping[str, Robust] = {
    "median": Robust(lambda u, w, s: median(u, w), majority),
    "trimmed_mean": Robust(lambda u, w, s: trimmed_mean(u, w, hostile=s.hostile), majority),
    "krum": Robust(lambda u, w, s: krum(u, w, hostile=s.hostile), with_neighbours),
    "multi_krum": Robust(lambda u, w, s: multi_krum(u, w, hostile=s.hostile), with_neighbours),
    "geometric_median": Robust(lambda u, w, s: geometric_median(u, w, **own_steps(s)), majority, takes=("steps",)),
    "centered_clipping": Robust(
        lambda u, w, s: centered_clipping(u, w, radius=s.radius, **own_steps(s)), majority, takes=("radius", "steps")
    ),
}
"""The robust rules by name."""

OF_UPDATES = "a function (updates, weights, hostile=f) -> (centre, shares)"
"""What a user's robust rule is, in words."""


def users_rule(what: str, rule: Callable[..., Any], least: Callable[[int], int] = majority) -> Robust:
    """A robust rule of a user's program, `(updates, weights, *, hostile) -> (centre, shares [clients])`, whose results
    are checked in tracing.

    Raises:
      UserError: it fails, or the centre is not of the form of one client's update; when it is called.
    """

    def apply(updates: PyTree, weights: PyTree | None, settings: RobustSettings) -> tuple[PyTree, PyTree]:
        with users_program(what, OF_UPDATES):
            centre, shares = rule(updates, weights, hostile=settings.hostile)
        of_one, clients = jax.tree.map(lambda u: u.shape[1:], updates), jax.tree.leaves(updates)[0].shape[:1]
        for name, made, expected in (("centre", centre, of_one), ("shares", shares, clients)):
            if (found := jax.tree.map(jnp.shape, made)) != expected:
                raise UserError(f"{what} made the {name} of shapes {found}; expected {expected}")
        return jax.tree.map(lambda c, u: jnp.asarray(c, u.dtype), centre, updates), jnp.asarray(shares, jnp.float32)

    return Robust(apply, least)
