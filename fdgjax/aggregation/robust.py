"""The robust rules by name: what each takes of a defence's settings, and how many clients it needs."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from fdgjax.aggregation.centres import centered_clipping, geometric_median
from fdgjax.aggregation.krum import krum, multi_krum
from fdgjax.aggregation.trimmed import median, trimmed_mean
from fdgjax.contract import PyTree


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
