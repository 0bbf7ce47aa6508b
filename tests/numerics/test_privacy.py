"""Costs of Gaussian releases against closed forms, an integral, and Flower's own accountant."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import norm

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.privacy import ORDERS, clip_norm, epsilon_of, epsilon_of_releases, log_moments


def exact_delta(epsilon: float, mean_shift: float) -> float:
    """Return the exact `delta` at `epsilon` of telling `N(0, 1)` from `N(mean_shift, 1)` [Balle2018].

    `k` releases without sampling are one such choice, with `mean_shift = sqrt(k) / z`.

    [Balle2018] Balle, Wang: Improving the Gaussian mechanism for differential privacy, Theorem 8.
    """
    first = log_ndtr(mean_shift / 2 - epsilon / mean_shift)
    second = epsilon + log_ndtr(-mean_shift / 2 - epsilon / mean_shift)
    return float(np.exp(first) - np.exp(second))


def integral(order: float, q: float, z: float) -> float:
    """`log E_{x ~ N(0, z^2)} [(1 - q + q exp((2x - 1) / 2z^2))^a]`, the divergence by its definition."""

    def density(x: float) -> float:
        ratio = 1 - q + q * math.exp((2 * x - 1) / (2 * z**2))
        return float(norm.pdf(x, scale=z)) * ratio**order

    top = order  # where the integrand of the shifted part sits
    return math.log(quad(density, -12 * z, top + 12 * z, limit=500, points=[0.0, 1.0, top])[0])


@pytest.mark.parametrize(("q", "z"), [(0.1, 1.0), (0.35, 1.5), (0.9, 2.0)])
def test_whole_orders_are_the_integral_and_others_lie_above_it(q: float, z: float) -> None:
    moments = dict(zip(ORDERS.tolist(), log_moments(q, z).tolist(), strict=True))
    for order in (2.0, 3.0, 5.0, 8.0):
        assert moments[order] == pytest.approx(integral(order, q, z), rel=1e-6)
    for order in (1.5, 2.5, 4.4):
        key = min(moments, key=lambda a: abs(a - order))
        assert moments[key] >= integral(key, q, z)


def test_without_sampling_the_divergence_is_the_closed_form() -> None:
    np.testing.assert_allclose(log_moments(1.0, 1.7) / (ORDERS - 1), ORDERS / (2 * 1.7**2), rtol=1e-12)
    # and the limit of the sum over samples
    whole = np.round(ORDERS) == ORDERS
    np.testing.assert_allclose(log_moments(1.0 - 1e-12, 1.7)[whole], log_moments(1.0, 1.7)[whole], rtol=1e-6)


@pytest.mark.parametrize(("releases", "z"), [(1, 1.0), (10, 1.0), (50, 5.0), (50, 20.0)])
def test_epsilon_is_above_the_exact_one_of_gaussians_and_not_far(releases: int, z: float) -> None:
    shift = math.sqrt(releases) / z
    exact = brentq(lambda e: exact_delta(e, shift) - 1e-5, 1e-9, 500.0)
    found = epsilon_of_releases(releases, 1.0, z, 1e-5)
    assert exact <= found <= 1.15 * exact + 0.05


def test_the_exact_delta_is_that_of_a_threshold_test() -> None:
    # delta(epsilon) = max over events of P(A) - e^epsilon Q(A); the best events are half-lines
    shift, epsilon = 0.8, 0.5
    cuts = np.linspace(-6, 6, 4001)
    best = np.max(norm.sf(cuts - shift) - math.exp(epsilon) * norm.sf(cuts))
    assert exact_delta(epsilon, shift) == pytest.approx(best, abs=1e-6)


def test_sampling_and_noise_lower_the_cost_and_releases_raise_it() -> None:
    base = epsilon_of_releases(20, 0.3, 1.0, 1e-4)
    assert epsilon_of_releases(20, 0.1, 1.0, 1e-4) < base < epsilon_of_releases(20, 1.0, 1.0, 1e-4)
    assert epsilon_of_releases(20, 0.3, 2.0, 1e-4) < base < epsilon_of_releases(40, 0.3, 1.0, 1e-4)
    assert epsilon_of_releases(20, 0.3, 1.0, 1e-6) > base
    assert epsilon_of_releases(0, 0.3, 1.0, 1e-4) == 0.0
    assert epsilon_of_releases(5, 0.0, 1.0, 1e-4) == 0.0
    assert epsilon_of_releases(1, 0.3, 0.0, 1e-4) == math.inf


@pytest.mark.parametrize(("q", "z"), [(0.1, 0.8), (0.35, 1.0), (0.35, 4.0), (1.0, 1.0)])
def test_flowers_accountant_agrees(q: float, z: float) -> None:
    pytest.importorskip("dp_accounting", reason='comes with "flwr[dp]"')
    accounting = pytest.importorskip("flwr.serverapp")
    method = accounting.SamplingMethod.POISSON if q < 1 else accounting.SamplingMethod.NO_AMPLIFICATION
    config = accounting.PrivacyConfig(
        target_delta=1e-4,
        population_size=1000,
        neighboring_relation=accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=method,
    )
    accountant = accounting.RdpAccountant(config)
    accountant.compose(
        accounting.GaussianPrivacyEvent(
            noise_multiplier=z, sample_size=round(q * 1000), population_size=1000
        ),
        30,
    )
    theirs = accountant.get_epsilon(1e-4)
    assert theirs * 0.999 <= epsilon_of_releases(30, q, z, 1e-4) <= theirs * 1.05


def test_settings_without_meaning_are_refused() -> None:
    for q, z in ((-0.1, 1.0), (1.1, 1.0), (0.5, 0.0), (0.5, math.nan), (0.5, math.inf)):
        with pytest.raises(ConfigError, match="privacy"):
            log_moments(q, z)
    for delta in (0.0, 1.0, -1.0):
        with pytest.raises(ConfigError, match="delta"):
            epsilon_of(np.ones_like(ORDERS), delta)


def test_clipping_shortens_long_vectors_and_leaves_short_ones() -> None:
    long, short = np.array([3.0, -4.0]), np.array([0.3, 0.4])
    np.testing.assert_allclose(clip_norm(long, 2.5), [1.5, -2.0], rtol=1e-15)
    assert clip_norm(short, 2.5) is short
    np.testing.assert_array_equal(clip_norm(np.zeros(3), 1.0), np.zeros(3))
