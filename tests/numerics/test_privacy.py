"""Costs of Gaussian releases against their definition; what an agent's account holds, adds and refuses."""

import json
import math
import sys

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.privacy import (
    MOST_ENTRIES,
    MOST_RELEASES,
    Account,
    clip_norm,
    gaussian_epsilon,
    sampled_epsilon,
)


def delta_of(epsilon, z, q):
    """Return `delta` of one release by its definition: the integral of `max(0, p - exp(epsilon) q)`."""

    def plain(x):
        return math.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2 * math.pi))

    def mixture(x):
        return (1 - q) * plain(x) + q * plain(x - 1.0)

    def integral(upper, lower):
        ends = -12 * z, 1 + 12 * z
        return quad(lambda x: max(0.0, upper(x) - math.exp(epsilon) * lower(x)), *ends, limit=2000)[0]

    return max(integral(mixture, plain), integral(plain, mixture))


@pytest.mark.parametrize(("z", "q", "delta"), [(0.5, 0.1, 1e-4), (1.0, 0.35, 1e-2), (1.0, 1.0, 1e-4)])
def test_epsilon_of_one_release_is_that_of_the_definition(z, q, delta):
    found = sampled_epsilon(z, q, 1, delta)
    exact = 0.0
    if delta_of(0.0, z, q) > delta:
        exact = brentq(lambda e: delta_of(e, z, q) - delta, 0.0, 2 * found + 0.1, xtol=1e-7)
    assert exact - 1e-6 <= found <= 1.01 * exact + 1e-3


def exact_delta(epsilon, precision):
    """Return the delta of the best threshold between `N(0, 1)` and `N(m, 1)`, in 60 digits."""
    with mpmath.workdps(60):
        m = mpmath.sqrt(mpmath.mpf(precision))
        cut = epsilon / m + m / 2
        return float(mpmath.ncdf(m - cut) - mpmath.exp(epsilon) * mpmath.ncdf(-cut))


@pytest.mark.parametrize("z", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("delta", [0.4, 1e-3, 1e-15])
def test_releases_together_cost_what_one_with_their_precision_costs(z, delta):
    epsilon = Account().add(z).add(2 * z, 2).epsilon(delta)
    precision = 1 / z**2 + 2 / (2 * z) ** 2
    assert epsilon == pytest.approx(gaussian_epsilon(precision, delta), rel=1e-12)
    assert exact_delta(epsilon, precision) <= delta * (1 + 1e-6)
    assert epsilon == 0.0 or exact_delta(epsilon * (1 - 1e-6), precision) > delta


def test_no_release_costs_nothing_and_little_noise_as_much_as_without_sampling():
    assert sampled_epsilon(1.0, 0.3, 0, 1e-4) == 0.0
    assert sampled_epsilon(0.0, 0.3, 1, 1e-4) == sampled_epsilon(1e-7, 0.3, 1, 1e-4) == math.inf
    assert sampled_epsilon(0.05, 0.3, 2, 1e-4) == sampled_epsilon(0.05, 1.0, 2, 1e-4)
    assert sampled_epsilon(1.0, 0.35, 20, 1e-15) <= gaussian_epsilon(20.0, 1e-15)


@pytest.mark.parametrize(("z", "q"), [(4.0, 0.35), (20.0, 0.1)])
def test_the_coarse_grid_costs_less_than_one_percent(z, q):
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    fine = PLDAccountant(value_discretization_interval=1e-4)
    fine.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(z)), 40)
    exact = fine.get_epsilon(1e-3)
    assert exact * (1 - 1e-6) <= sampled_epsilon(z, q, 40, 1e-3) <= 1.01 * exact


def test_without_the_library_sampled_releases_are_refused_and_others_counted(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"fbo-flower\[dp\]"):
        sampled_epsilon(1.0, 0.31, 20, 1e-3)
    assert sampled_epsilon(1.0, 1.0, 20, 1e-3) > 0
    assert Account().add(1.0).epsilon(1e-3) > 0


def test_clipping_shortens_long_vectors_and_leaves_short_ones():
    long, short = np.array([3.0, -4.0]), np.array([0.3, 0.4])
    np.testing.assert_allclose(clip_norm(long, 2.5), [1.5, -2.0], rtol=1e-15)
    assert clip_norm(short, 2.5) is short
    np.testing.assert_array_equal(clip_norm(np.zeros(3), 1.0), np.zeros(3))


# -- accounts ------------------------------------------------------------------------------------------


def test_an_account_adds_up_within_bounds_and_a_release_without_noise_costs_everything():
    assert Account().add(4.0, 2).add(4.0) == Account({4.0: 3})
    assert Account().epsilon(1e-3) == Account().add(1e9).epsilon(1e-3) == 0.0
    assert Account().add(1.0).add(0.0).epsilon(1e-3) == math.inf
    assert 1e11 < Account().add(1e-6).add(1e9).epsilon(1e-3) < math.inf
    assert 0 < Account().add(5000.0, MOST_RELEASES).epsilon(1e-3) < 10
    full = Account.from_json({"releases": [[1.0 + i, 1] for i in range(MOST_ENTRIES)]})
    assert math.isfinite(full.add(1.0).epsilon(1e-3)), "an entry that is there"


def test_json_returns_the_account_and_its_form_stays():
    account = Account().add(2, 3).add(1.0).add(0.0, 1000)
    text = json.dumps(account.to_json())
    assert text == '{"releases": [[0.0, 1000], [1.0, 1], [2.0, 3]]}'
    assert Account.from_json(json.loads(text)) == account
