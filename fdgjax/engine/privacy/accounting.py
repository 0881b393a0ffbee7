r"""Epsilon of many noisy sums by Renyi differential privacy, computed by the library dp-accounting.

A round adds `steps` Gaussian noises of standard deviation `z C` to sums of parts whose norms are at most C. The Renyi
divergences (Mironov, 2017) of such sums add up over the rounds, and

    epsilon(delta) = min over orders a of  rdp(a) + log(1 - 1/a) - log(delta a) / (a - 1)

(Canonne, Kamath and Steinke, 2020, Proposition 12). Which two data sets count as neighbours depends on the sampling:

    poisson    each part is taken with probability q: neighbours have one part more or less, so that the sum moves by C
               (Mironov, Talwar and Zhang, "Renyi differential privacy of the sampled Gaussian mechanism", 2019). At
               orders that are no whole numbers, the bound without sampling, which is never less, as the divergence
               is quasi-convex
    fixed      exactly m of n parts are taken, without replacement: neighbours have another part in one place, so that
               the sum moves by 2 C (Wang, Balle and Kasiviswanathan, "Subsampled Renyi differential privacy and
               analytical moments accountant", 2019, Theorem 27). That bound may exceed the one without sampling; the
               smaller of both holds, order by order.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdgjax.utils.errors import UserError, check_library

LIBRARY = "dp_accounting"
WHOLE = (*range(2, 33), 40, 48, 64, 96, 128, 256)
"""Orders that are tried for sampled parts: the series of others converge slowly or not at all."""
ORDERS = (*(1 + x / 50 for x in range(1, 50)), *(1 + x / 10 for x in range(11, 100) if x % 10), *WHOLE)
"""Orders that are tried: each gives a valid epsilon, more of them a smaller one. A large epsilon has its least below
order 2."""
LEAST_NOISE, MOST_NOISE = 0.05, 1e5
"""Where the noise of an epsilon is looked for."""
COUNTED = (1e-9, 1e6)
"""The noise multipliers that are allowed; of those far below or above them the library's divergences are no numbers."""


class Exposure(NamedTuple):
    """What a round releases about one of those who are protected.

    scheme: how parts of the sums are sampled, an entry of `SCHEMES`. part, whole: how many are taken (with `poisson`,
    expected), and of how many. steps: sums per round.
    """

    scheme: str
    part: int
    whole: int
    steps: int = 1


class SamplingScheme(NamedTuple):
    """A way of sampling.

    relation: the library's name of the neighbours. events: by the library, an exposure and the noise multiplier, events
    of which each bounds what one sum releases.
    """

    relation: str
    events: Callable[[Any, Exposure, float], Sequence[Any]]


def _poisson(library: Any, exposure: Exposure, noise: float) -> Sequence[Any]:
    plain = library.GaussianDpEvent(noise)
    return [library.PoissonSampledDpEvent(min(1.0, exposure.part / max(exposure.whole, 1)), plain), plain]


def _fixed(library: Any, exposure: Exposure, noise: float) -> Sequence[Any]:
    # Another part in one place moves the sum by twice the largest norm.
    plain = library.GaussianDpEvent(noise / 2)
    if exposure.part >= exposure.whole:
        return [plain]
    return [library.SampledWithoutReplacementDpEvent(exposure.whole, exposure.part, plain), plain]


SCHEMES: Mapping[str, SamplingScheme] = {
    "poisson": SamplingScheme("ADD_OR_REMOVE_ONE", _poisson),
    "fixed": SamplingScheme("REPLACE_ONE", _fixed),
}


def check_accountant() -> None:
    """Raises a `UserError` where the library is missing."""
    check_library("config.privacy", LIBRARY, "privacy", ", or leave config.privacy.unit empty")


def is_counted(noise: float) -> bool:
    """Whether a noise multiplier's cost can be computed; NaN's cannot."""
    least, most = COUNTED
    return least <= noise <= most


def check_noise(noise: float) -> None:
    """Raises a `UserError` for a noise multiplier whose cost cannot be computed, such as NaN."""
    if not is_counted(noise):
        least, most = COUNTED
        raise UserError(
            f"the noise multiplier (config.privacy.noise) got {noise}; expected a number from {least:g} to {most:g}, "
            "such as 1.0"
        )


def divergences(exposure: Exposure, noise: float) -> np.ndarray:
    """The Renyi divergences of one round, at each of `ORDERS`; infinite for a noise that `check_noise` refuses."""
    import dp_accounting as library

    if not is_counted(noise):
        return np.full(len(ORDERS), np.inf)
    scheme = SCHEMES[exposure.scheme]

    def of(event: Any) -> np.ndarray:
        orders = ORDERS if isinstance(event, library.GaussianDpEvent) else WHOLE
        accountant = library.rdp.RdpAccountant(orders, library.NeighboringRelation[scheme.relation])
        accountant.compose(event, exposure.steps)
        # The library returns epsilon alone; of its divergences every round's epsilon follows without new integrals.
        found = dict(zip(orders, accountant._rdp, strict=True))
        return np.asarray([found.get(order, np.inf) for order in ORDERS])

    return functools.reduce(np.minimum, map(of, scheme.events(library, exposure, noise)))


def budget(exposures: Sequence[Exposure], noise: float, delta: float) -> Callable[[int], float]:
    """Epsilon after so many rounds, the largest over those who are protected.

    Args:
      exposures: of each of them; repetitions cost nothing.
      noise: the noise multiplier z.
      delta: of (epsilon, delta).
    """
    from dp_accounting import rdp

    curves = [divergences(one, noise) for one in worst_of(exposures)]

    def after(rounds: int) -> float:
        return max((float(rdp.compute_epsilon(ORDERS, rounds * curve, delta)[0]) for curve in curves), default=0.0)

    return after


def spent(releases: Iterable[tuple[Exposure, float]], delta: float) -> float:
    """Epsilon of rounds that have been released, each with its exposure and its noise multiplier; 0 for none."""
    from dp_accounting import rdp

    counted = Counter(releases)
    if not counted:
        return 0.0
    total = sum(times * divergences(exposure, noise) for (exposure, noise), times in counted.items())
    return float(rdp.compute_epsilon(ORDERS, total, delta)[0])


def worst_of(exposures: Sequence[Exposure]) -> list[Exposure]:
    """Those of which no other is sampled more often in at least as many steps.

    >>> worst_of([Exposure("poisson", 8, 20, 3), Exposure("poisson", 8, 22, 3), Exposure("poisson", 8, 30, 4)])
    [Exposure(scheme='poisson', part=8, whole=20, steps=3), Exposure(scheme='poisson', part=8, whole=30, steps=4)]
    """
    found: list[Exposure] = []
    exposed = {each for each in exposures if each.whole and each.steps}
    for one in sorted(exposed, key=lambda one: (one.scheme, one.part, one.whole, -one.steps)):
        if all((one.scheme, one.part) != (other.scheme, other.part) or one.steps > other.steps for other in found):
            found.append(one)
    return found


def needed_noise(exposures: Sequence[Exposure], epsilon: float, delta: float, rounds: int) -> float:
    """The smallest noise multiplier, to four digits, with which so many rounds cost at most `epsilon`.

    Raises:
      UserError: an epsilon that no noise reaches with these orders.
    """

    @functools.cache
    def excess(log_noise: float) -> float:
        return budget(exposures, math.exp(log_noise), delta)(rounds) - epsilon

    low, high = math.log(LEAST_NOISE), math.log(MOST_NOISE)
    if excess(high) > 0:
        raise UserError(
            f"config.privacy.epsilon got {epsilon} with delta={delta} in {rounds} rounds; expected at least "
            f"{excess(high) + epsilon:.3g}, which a noise of {MOST_NOISE:g} reaches; raise it"
        )
    while high - low > 1e-4 and excess(low) > 0:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    chosen = math.exp(high if excess(low) > 0 else low)
    digits = 10.0 ** (3 - math.floor(math.log10(chosen)))
    return math.ceil(chosen * digits) / digits
