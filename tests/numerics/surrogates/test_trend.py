import numpy as np
import pytest
from sklearn.linear_model import Ridge

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.numerics.surrogates.trend import (
    agreement,
    alignment,
    deviations,
    federation_weight,
    first_weight,
    own_weight,
    packed_size,
    ridge_weights,
    statistics,
)

RNG = np.random.default_rng(0)
FEATURES = draw_features(20, 0.5, 3, RNG)
X, Y = RNG.random((15, 3)), RNG.standard_normal(15)
PHI = FEATURES(X)


def test_weights_are_those_of_ridge_regression_on_all_observations():
    parts = [statistics(PHI[rows], Y[rows]) for rows in (slice(0, 4), slice(4, 4), slice(4, 15))]
    gram, moment = (np.sum(sums, axis=0) for sums in zip(*parts, strict=True))
    expected = Ridge(alpha=0.1, fit_intercept=False, tol=1e-12).fit(PHI, Y).coef_
    np.testing.assert_allclose(ridge_weights(gram, moment, 0.1), expected, rtol=1e-8)


def test_subtracting_a_part_leaves_the_regression_on_the_others():
    whole, own = statistics(PHI, Y), statistics(PHI[:5], Y[:5])
    others = statistics(PHI[5:], Y[5:])
    left = [a - b for a, b in zip(whole, own, strict=True)]
    np.testing.assert_allclose(ridge_weights(*left, 0.1), ridge_weights(*others, 0.1), rtol=1e-9)


def test_without_observations_the_trend_is_zero():
    gram, moment = statistics(PHI[:0], Y[:0])
    assert len(gram) == packed_size(20)
    np.testing.assert_array_equal(ridge_weights(gram, moment, 0.1), 0.0)


def test_weight_of_the_trend_is_the_posterior_mean_of_a_slope():
    m, y, prior, strength = RNG.standard_normal(9), RNG.standard_normal(9), 0.6, 1.5
    m -= m.mean()
    slopes = np.linspace(-20, 20, 400_001)
    log_density = -0.5 * strength * (slopes - prior) ** 2
    log_density -= 0.5 * ((y[:, None] - slopes * m[:, None]) ** 2).sum(axis=0)
    density = np.exp(log_density - log_density.max())
    mean = float(slopes @ density / density.sum())
    assert own_weight(agreement(m, y), prior) == pytest.approx(max(mean, 0.0), abs=1e-6)


def test_weight_is_cut_off_where_the_trend_is_wrong_or_too_flat():
    m = RNG.standard_normal(50)
    assert own_weight(agreement(m, -m), 0.5) == 0.0
    assert own_weight(agreement(m, 9 * m), 0.5) == 1.5
    assert own_weight(agreement(m, m), 0.5) == pytest.approx(1.0, abs=0.05)


def test_a_federation_that_the_trend_fails_holds_its_agents_back():
    own = np.array([1.0, 1.0])
    weights = [own_weight(own, federation) for federation in (0.0, 0.1, 0.25, 0.5)]
    assert weights[0] == 0.0
    assert weights == sorted(weights)
    assert weights[1] < 0.15
    assert weights[3] > 0.6


def test_federation_weight_is_the_slope_less_what_chance_gives():
    sums = np.array([20.0, 25.0])  # z = 4
    assert deviations(sums) == 4.0
    assert federation_weight(sums) == pytest.approx((3 * 0.5 + 20) / (3 + 25) * 0.75)
    assert federation_weight(np.array([5.0, 25.0])) == federation_weight(np.array([-9.0, 25.0])) == 0.0


def moments(related: bool, rng):
    """b_i of 12 agents with 3 uniform points each, on a common bowl or on bowls of their own."""
    common, found = rng.random(3), []
    for _ in range(12):
        x = rng.random((3, 3))
        y = -((x - (common if related else rng.random(3))) ** 2).sum(axis=1)
        if not related:
            y *= rng.choice([-1, 1])
        found.append(FEATURES(x).T @ ((y - y.mean()) / y.std()))
    return np.array(found)


def test_alignment_tells_related_agents_from_unrelated_ones_at_three_random_points_each():
    uniform = FEATURES(RNG.random((500, 3)))
    z = {
        related: np.array(
            [
                alignment(b.sum(axis=0), float((b**2).sum()), uniform)
                for b in (moments(related, np.random.default_rng([seed, related])) for seed in range(200))
            ]
        )
        for related in (False, True)
    }
    assert abs(z[False].mean()) < 0.2
    assert 0.6 < z[False].std() < 1.4
    assert np.median(z[True]) > 3
    assert first_weight(float(np.median(z[True]))) > 0.4 > first_weight(1.0) == first_weight(-3.0) == 0.0


def test_alignment_counts_pairs_of_different_agents_only():
    b = moments(True, np.random.default_rng(0))
    pairs = sum(float(p @ q) for i, p in enumerate(b) for j, q in enumerate(b) if i != j)
    phi = FEATURES(RNG.random((500, 3)))
    covariance = np.cov(phi.T)
    expected = pairs / (b**2).sum() / np.sqrt(2 * np.trace(covariance @ covariance)) * np.trace(covariance)
    assert alignment(b.sum(axis=0), float((b**2).sum()), phi) == pytest.approx(expected)
    assert alignment(np.zeros(20), 0.0, phi) == 0.0


def test_sums_that_no_agents_can_have_sent_are_refused():
    gram, moment = statistics(PHI, Y)
    with pytest.raises(NumericalError):
        ridge_weights(-gram, moment, 0.1)
    with pytest.raises(ConfigError):
        ridge_weights(gram[1:], moment, 0.1)
    with pytest.raises(ConfigError):
        statistics(PHI, Y[1:])
