"""Epsilon agrees with published values, with the library's own answer and with a closed form, and noise is enough."""

import math

import dp_accounting
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fdgjax.engine.privacy import Exposure, budget, check_noise, needed_noise, spent
from fdgjax.engine.privacy.accounting import worst_of
from fdgjax.utils.errors import UserError

HUNDREDTH = Exposure("poisson", 600, 60_000)
NEIGHBOURS = dp_accounting.NeighboringRelation


def exact_epsilon(mu: float, delta: float) -> float:
    """Of Gaussian noises alone, whose sum over the squared ratios of norm to deviation is mu^2 (Balle and Wang, 2018,
    Theorem 8; Dong, Roth and Su, 2022, corollary 3.3)."""

    def excess(epsilon: float) -> float:
        below = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        return float(below - delta)

    return float(brentq(excess, 0, 700))


def test_the_moments_accountant_s_published_value() -> None:
    # Abadi et al., 2016, section 3.2: 1.26 for q = 0.01, sigma = 4, delta = 1e-5, T = 10000. Conversions have become
    # tighter since.
    assert 1.0 < budget([HUNDREDTH], 4.0, 1e-5)(10_000) < 1.26


@pytest.mark.parametrize(
    ("exposure", "event", "relation"),
    [
        (
            HUNDREDTH,
            dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(2.0)),
            NEIGHBOURS.ADD_OR_REMOVE_ONE,
        ),
        # Neighbours that differ in one of a fixed number move a sum of parts within C by 2 C.
        (
            Exposure("fixed", 10, 1000),
            dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, dp_accounting.GaussianDpEvent(1.0)),
            NEIGHBOURS.REPLACE_ONE,
        ),
        (Exposure("fixed", 7, 7), dp_accounting.GaussianDpEvent(1.0), NEIGHBOURS.REPLACE_ONE),
        (Exposure("fixed", 8, 7), dp_accounting.GaussianDpEvent(1.0), NEIGHBOURS.REPLACE_ONE),
    ],
)
def test_it_is_the_library_s_own_answer(
    exposure: Exposure, event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation
) -> None:
    # With sampling, the series of orders that are no whole numbers converge slowly.
    between = [1.25, 1.3, 1.35, 1.4, 1.5, 1.75] if isinstance(event, dp_accounting.GaussianDpEvent) else []
    accountant = dp_accounting.rdp.RdpAccountant([*between, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32], relation)
    theirs = accountant.compose(event, 100).get_epsilon(1e-5)
    ours = budget([exposure], 2.0, 1e-5)(100)
    assert 0.9 * theirs < ours <= theirs


@pytest.mark.parametrize(("noise", "rounds"), [(2.0, 1), (8.0, 10), (40.0, 100), (1.0, 200)])
def test_without_sampling_it_bounds_the_closed_form_from_above(noise: float, rounds: int) -> None:
    exact = exact_epsilon(2 * math.sqrt(rounds) / noise, 1e-5)
    assert exact <= budget([Exposure("fixed", 20, 20)], noise, 1e-5)(rounds) < 1.2 * exact


@pytest.mark.parametrize("noise", [math.nan, -1.0, 0.0, 1e-320, 1e-155, 1e20, 1e160, math.inf])
@pytest.mark.parametrize("exposure", [Exposure("poisson", 6, 12, 2), Exposure("fixed", 3, 30), Exposure("fixed", 7, 7)])
def test_a_noise_whose_cost_is_no_number_protects_nobody(exposure: Exposure, noise: float) -> None:
    assert budget([exposure], noise, 1e-3)(1) == math.inf
    assert spent([(exposure, 2.0), (exposure, noise)], 1e-3) == math.inf
    with pytest.raises(UserError, match=r"noise multiplier \(config.privacy.noise\) got"):
        check_noise(noise)


@pytest.mark.parametrize("exposure", [Exposure("poisson", 6, 12, 2), Exposure("fixed", 3, 30), Exposure("fixed", 7, 7)])
def test_epsilon_falls_with_the_noise_as_far_as_that_is_allowed(exposure: Exposure) -> None:
    found = [budget([exposure], noise, 1e-3)(1) for noise in (1e-9, 1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6)]
    assert all(map(math.isfinite, found))
    assert found == sorted(found, reverse=True)
    check_noise(1e-9)
    check_noise(1e6)


def test_sampling_never_costs_more_than_everybody() -> None:
    everybody, some = (budget([Exposure("fixed", part, 40)], 3.0, 1e-4) for part in (40, 4))
    for rounds in (1, 10, 100):
        assert some(rounds) <= everybody(rounds)
    assert some(10) < everybody(10) / 2


def test_it_grows_with_rounds_and_starts_at_nothing() -> None:
    spent = budget([HUNDREDTH], 1.0, 1e-5)
    assert spent(0) == 0
    assert 0 < spent(1) < spent(10) < spent(100)


def test_the_worst_of_many_is_found_without_all_of_them() -> None:
    many = [Exposure("poisson", 8, size, -(-size // 8)) for size in (9, 12, 16, 17, 20, 24, 40)]
    assert [one.whole for one in worst_of(many)] == [9, 17, 40]
    assert budget(many, 1.5, 1e-3)(3) == max(budget([one], 1.5, 1e-3)(3) for one in many)


@pytest.mark.parametrize("exposure", [Exposure("fixed", 20, 20), Exposure("poisson", 8, 30, 4)])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_the_noise_is_enough_and_hardly_more(exposure: Exposure, epsilon: float) -> None:
    noise = needed_noise([exposure], epsilon, 1e-3, 10)
    assert budget([exposure], noise, 1e-3)(10) <= epsilon < budget([exposure], 0.99 * noise, 1e-3)(10)


def test_an_epsilon_beyond_the_orders_is_an_error() -> None:
    with pytest.raises(UserError, match=r"config.privacy.epsilon got 0.001 with delta=1e-09 in 5 rounds; expected at"):
        needed_noise([Exposure("fixed", 20, 20)], 1e-3, 1e-9, 5)
