import numpy as np
import pytest
from sklearn.linear_model import Ridge

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.numerics.surrogates.trend import (
    agreement,
    packed_size,
    ridge_weights,
    statistics,
    trend_weight,
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
    m, y, prior, strength = RNG.standard_normal(9), RNG.standard_normal(9), 0.4, 1.5
    m -= m.mean()
    slopes = np.linspace(-20, 20, 400_001)
    log_density = -0.5 * strength * (slopes - prior) ** 2
    log_density -= 0.5 * ((y[:, None] - slopes * m[:, None]) ** 2).sum(axis=0)
    density = np.exp(log_density - log_density.max())
    mean = float(slopes @ density / density.sum())
    assert trend_weight(agreement(m, y), prior, strength) == pytest.approx(max(mean, 0.0), abs=1e-6)


def test_weight_is_cut_off_where_the_trend_is_wrong_or_too_flat():
    m = RNG.standard_normal(50)
    assert trend_weight(agreement(m, -m), 0.5, 1.5) == 0.0
    assert trend_weight(agreement(m, 9 * m), 0.5, 1.5) == 1.5
    assert trend_weight(agreement(m, m), 0.5, 1.5) == pytest.approx(1.0, abs=0.05)


def test_sums_that_no_agents_can_have_sent_are_refused():
    gram, moment = statistics(PHI, Y)
    with pytest.raises(NumericalError):
        ridge_weights(-gram, moment, 0.1)
    with pytest.raises(ConfigError):
        ridge_weights(gram[1:], moment, 0.1)
    with pytest.raises(ConfigError):
        statistics(PHI, Y[1:])
