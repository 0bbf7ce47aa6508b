"""Losses of Gaussian releases against closed forms, integrals, random draws and the Renyi accountant."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.privacy import epsilon_of_releases
from fbo_flower.numerics.privacy_loss import (
    LossDistribution,
    PrivacyLoss,
    compose,
    delta,
    epsilon,
    gaussian_loss,
    grid_step,
    self_compose,
)

ROUNDING = 1e-12  # of the oracles


def exact_delta(eps: float, mean_shift: float) -> float:
    """Return the exact delta of telling `N(0, 1)` from `N(mean_shift, 1)` [Balle2018, Theorem 8]."""
    first = log_ndtr(mean_shift / 2 - eps / mean_shift)
    second = eps + log_ndtr(-mean_shift / 2 - eps / mean_shift)
    return float(np.exp(first) - np.exp(second))


def exact_epsilon(num_releases: int, z: float, delta: float) -> float:
    shift = math.sqrt(num_releases) / z
    if exact_delta(0.0, shift) <= delta:
        return 0.0
    top = shift**2 / 2 + 12 * shift
    return float(brentq(lambda e: exact_delta(e, shift) - delta, 0.0, top, xtol=1e-14))


def sampled_delta(eps: float, q: float, z: float, *, removed: bool) -> float:
    """Return the hockey-stick divergence of one release, from the event where `P > e^eps Q`."""
    level = math.exp(eps if removed else -eps)  # the mixture over the plain Gaussian, at the event's end
    if level <= 1 - q:
        return 1 - math.exp(eps) if removed else 0.0
    x = 0.5 + z**2 * math.log((level - (1 - q)) / q)
    if removed:
        return float((1 - q) * ndtr(-x / z) + q * ndtr((1 - x) / z) - math.exp(eps) * ndtr(-x / z))
    return float(ndtr(x / z) - math.exp(eps) * ((1 - q) * ndtr(x / z) + q * ndtr((x - 1) / z)))


def integral(eps: float, q: float, z: float, *, removed: bool) -> float:
    """Return the hockey-stick divergence of one release by its definition."""

    def excess(x: float) -> float:
        plain = math.exp(-(x**2) / (2 * z**2)) / (z * math.sqrt(2 * math.pi))
        shifted = math.exp(-((x - 1) ** 2) / (2 * z**2)) / (z * math.sqrt(2 * math.pi))
        mixture = (1 - q) * plain + q * shifted
        return max(0.0, mixture - math.exp(eps) * plain if removed else plain - math.exp(eps) * mixture)

    return float(quad(excess, -10 * z, 1 + 10 * z, limit=2000, points=[0.0, 0.5, 1.0], epsabs=1e-11)[0])


# -- without sampling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("z", [0.05, 0.5, 1.0, 4.0, 50.0, 1e4])
@pytest.mark.parametrize("num_releases", [1, 2, 20, 1000])
@pytest.mark.parametrize("target", [1e-2, 1e-3, 1e-5, 1e-8])
def test_epsilon_without_sampling_is_at_most_one_percent_above_the_exact_one(
    z: float, num_releases: int, target: float
) -> None:
    exact = exact_epsilon(num_releases, z, target)
    found = epsilon(self_compose(gaussian_loss(z), num_releases), target)
    assert exact <= found * (1 + 1e-9) <= 1.01 * exact + 1e-9


def test_delta_without_sampling_is_never_below_the_exact_one() -> None:
    loss = self_compose(gaussian_loss(2.0), 10)
    for eps in np.linspace(0, 12, 49):
        exact = exact_delta(float(eps), math.sqrt(10) / 2.0)
        assert exact - ROUNDING <= delta(loss, float(eps)) <= 1.02 * exact + 1e-9


def test_a_mix_of_multipliers_is_one_gaussian() -> None:
    step = grid_step([(1.0, 1.0, 3), (2.0, 1.0, 5), (7.0, 1.0, 1)])
    loss = compose([gaussian_loss(z, 1.0, step) for z in (1.0, 2.0, 7.0)], [3, 5, 1])
    together = 1 / math.sqrt(3 + 5 / 4 + 1 / 49)
    exact = exact_epsilon(1, together, 1e-4)
    assert exact <= epsilon(loss, 1e-4) <= 1.005 * exact


# -- with sampling ------------------------------------------------------------------------------------

SETTINGS = [(0.35, 1.0), (0.35, 8.0), (0.05, 0.7), (0.9, 0.4), (0.001, 1.0), (0.999999, 2.0)]


def test_the_closed_form_of_one_release_is_the_integral() -> None:
    for q, z in ((0.35, 1.0), (0.9, 0.4)):
        for eps in (0.0, 0.2, 1.0, 2.5):
            for removed in (True, False):
                expected = integral(eps, q, z, removed=removed)
                assert sampled_delta(eps, q, z, removed=removed) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("q", "z"), SETTINGS)
def test_delta_of_one_sampled_release_is_the_closed_form_and_never_below(q: float, z: float) -> None:
    loss = gaussian_loss(z, q)
    fine = gaussian_loss(z, q, grid_step([(z, q, 1)]) / 16)
    for eps in np.concatenate([[0.0], np.geomspace(1e-5, 20, 40)]).tolist():
        remove, add = (sampled_delta(eps, q, z, removed=removed) for removed in (True, False))
        assert max(remove, add) - ROUNDING <= delta(loss, eps) <= 1.01 * max(remove, add) + 1e-4 * q, eps
        for exact, coarse, part in ((remove, loss.remove, fine.remove), (add, loss.add, fine.add)):
            assert exact - ROUNDING <= delta(PrivacyLoss(coarse, coarse), eps)
            assert (
                exact - ROUNDING <= delta(PrivacyLoss(part, part), eps) <= exact + 1e-3 * max(exact, 0.1 * q)
            )


@pytest.mark.parametrize(("first", "second"), [((0.35, 1.0), (0.35, 1.0)), ((0.2, 0.8), (0.6, 2.0))])
def test_delta_of_two_sampled_releases_is_the_integral(
    first: tuple[float, float], second: tuple[float, float]
) -> None:
    """`delta_12(eps) = E[delta_2(eps - L_1)]`, the expectation over the first release."""
    (q, z), (other_q, other_z) = first, second
    step = grid_step([(z, q, 1), (other_z, other_q, 1)])
    loss = compose([gaussian_loss(z, q, step), gaussian_loss(other_z, other_q, step)])

    def expected(eps: float, *, removed: bool) -> float:
        def inner(x: float) -> float:
            ratio = math.log(1 - q + q * math.exp((2 * x - 1) / (2 * z**2)))
            plain = math.exp(-(x**2) / (2 * z**2)) / (z * math.sqrt(2 * math.pi))
            density = plain * math.exp(ratio) if removed else plain
            left = eps - (ratio if removed else -ratio)
            return density * sampled_delta(left, other_q, other_z, removed=removed)

        return float(quad(inner, -9 * z, 1 + 9 * z, limit=2000, epsabs=1e-11)[0])

    for eps in (0.0, 0.3, 1.0, 2.0, 4.0):
        for removed, part in ((True, loss.remove), (False, loss.add)):
            exact = expected(eps, removed=removed)
            found = delta(PrivacyLoss(part, part), eps)
            assert exact - 1e-9 <= found <= 1.01 * exact + 1e-6, (eps, removed)


def test_delta_of_twenty_sampled_releases_is_that_of_random_draws() -> None:
    q, z, count, tries = 0.35, 1.0, 20, 200_000
    loss = self_compose(gaussian_loss(z, q), count)
    rng = np.random.default_rng(0)
    sums = np.zeros(tries)
    for _ in range(count):
        x = z * rng.standard_normal(tries) + (rng.random(tries) < q)
        sums += np.log(1 - q + q * np.exp((2 * x - 1) / (2 * z**2)))
    for eps in (1.0, 3.0, 6.0):
        excess = np.maximum(0.0, -np.expm1(eps - sums))
        error = excess.std() / math.sqrt(tries)
        assert abs(delta(loss, eps) - excess.mean()) < 4 * error + 0.002 * excess.mean()


@pytest.mark.parametrize("num_releases", [1, 10, 50, 1000])
@pytest.mark.parametrize(("q", "z"), [(0.35, 1.0), (0.35, 4.0), (0.01, 1.0), (1.0, 2.0)])
def test_epsilon_is_never_above_the_renyi_accountants(q: float, z: float, num_releases: int) -> None:
    found = epsilon(self_compose(gaussian_loss(z, q), num_releases), 1e-3)
    assert found <= epsilon_of_releases(num_releases, q, z, 1e-3)


def test_settings_of_our_results_cost_less_than_the_renyi_accountant_says() -> None:
    # independently: dp-accounting 0.6, PLDAccountant's grid of 1e-3, says 5.2621, 7.6712 and 13.2099
    for num_releases, theirs in ((10, 5.2621), (20, 7.6712), (50, 13.2099)):
        found = epsilon(self_compose(gaussian_loss(1.0, 0.35), num_releases), 1e-3)
        assert theirs * 0.9999 <= found <= theirs * 1.001
        assert found < 0.88 * epsilon_of_releases(num_releases, 0.35, 1.0, 1e-3)


# -- the grid -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "z"), SETTINGS)
def test_a_coarser_grid_costs_more(q: float, z: float) -> None:
    step = grid_step([(z, q, 20)])
    found = [epsilon(self_compose(gaussian_loss(z, q, step * k), 20), 1e-5) for k in (0.25, 1.0, 4.0, 16.0)]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(found))
    assert found[1] <= 1.005 * found[0] + 1e-4


@pytest.mark.parametrize(("q", "z"), SETTINGS)
def test_the_grid_keeps_both_masses(q: float, z: float) -> None:
    loss = gaussian_loss(z, q)
    for part in (loss.remove, loss.add):
        assert part.probabilities.sum() + part.infinity == pytest.approx(1.0, abs=1e-12)
        assert part.probabilities @ np.exp(-part.losses) == pytest.approx(1.0, abs=1e-9)


def test_convolution_is_within_its_stated_error_of_the_plain_sum() -> None:
    part = gaussian_loss(1.0, 0.35).remove
    plain = np.ones(1)
    for _ in range(30):
        plain = np.convolve(plain, part.probabilities)
    found = self_compose(PrivacyLoss(part, part), 30).remove
    start = found.offset - 30 * part.offset
    inside = plain[start : start + len(found.probabilities)]
    error = np.abs(inside - found.probabilities[: len(inside)]).sum()
    assert plain[start + len(inside) :].sum() + error < found.infinity < 1e-11


def test_heavy_tails_do_not_leave_the_window() -> None:
    # a rare, large loss beside many small ones
    part = LossDistribution(0.5, -1, np.array([0.5, 0.0, 0.5 - 1e-6, *np.zeros(400), 1e-6]), 0.0)
    loss = self_compose(PrivacyLoss(part, part), 100)
    assert delta(loss, 150.0) >= 1 - (1 - 1e-6) ** 100 - 1e-9
    assert delta(loss, 150.0) == pytest.approx(1e-4, rel=0.01)
    assert loss.remove.probabilities.sum() == pytest.approx(1.0, abs=1e-9)


def test_infinite_losses_add_up() -> None:
    part = LossDistribution(0.1, 0, np.array([0.9]), 0.1)
    loss = self_compose(PrivacyLoss(part, part), 2)
    assert loss.remove.infinity == pytest.approx(0.19, abs=1e-9)
    assert epsilon(loss, 0.1) == math.inf
    assert epsilon(loss, 0.2) == 0.0
    certain = LossDistribution(0.1, 0, np.array([0.0]), 1.0)
    assert delta(PrivacyLoss(certain, certain), 5.0) == 1.0


def test_nothing_costs_nothing_and_epsilon_inverts_delta() -> None:
    loss = gaussian_loss(1.0, 0.35)
    assert epsilon(self_compose(loss, 0), 1e-9) == 0.0
    assert self_compose(loss, 1).remove is loss.remove
    total = self_compose(loss, 7)
    for target in (0.2, 1e-2, 1e-4, 1e-6):
        assert delta(total, epsilon(total, target)) == pytest.approx(target, rel=1e-6)
    assert compose([total, loss], [1, 3]).remove.probabilities.sum() == pytest.approx(1.0)
    both = epsilon(compose([total, loss], [1, 3]), 1e-3)
    assert both == pytest.approx(epsilon(self_compose(loss, 10), 1e-3), rel=1e-6)


def test_settings_without_meaning_are_refused() -> None:
    for z, q in (
        (0.0, 1.0),
        (-1.0, 1.0),
        (math.nan, 1.0),
        (math.inf, 0.5),
        (1.0, 0.0),
        (1.0, 1.1),
        (1.0, math.nan),
    ):
        with pytest.raises(ConfigError, match="privacy"):
            gaussian_loss(z, q)
    loss = gaussian_loss(1.0)
    for step in (0.0, -1.0, math.nan, 1e-12):
        with pytest.raises(ConfigError, match="step"):
            gaussian_loss(1.0, 1.0, step)
    with pytest.raises(ConfigError, match="equal steps"):
        compose([loss, gaussian_loss(1.0, 1.0, 0.03)])
    for losses, counts in (([], None), ([loss], [-1]), ([loss], [1, 2])):
        with pytest.raises(ConfigError, match="compose"):
            compose(losses, counts)
    for target in (0.0, 1.0, math.nan):
        with pytest.raises(ConfigError, match="delta"):
            epsilon(loss, target)
    for eps in (-0.1, math.nan):
        with pytest.raises(ConfigError, match="epsilon"):
            delta(loss, eps)
    for step, probabilities, infinity in (
        (0.0, np.ones(1), 0.0),
        (1.0, np.ones((1, 1)), 0.0),
        (1.0, np.ones(0), 0.0),
        (1.0, np.array([-0.1]), 0.0),
        (1.0, np.array([math.nan]), 0.0),
        (1.0, np.ones(1), 1.5),
    ):
        with pytest.raises(ConfigError, match=r"step|probabilities|infinity"):
            LossDistribution(step, 0, probabilities, infinity)
