"""The model of what agents have in common, against brute force, fixed numbers and distributions."""

import numpy as np
import pytest
from scipy import stats

from fbo_flower.numerics.surrogates import gp, trend
from fbo_flower.numerics.surrogates.trend import Level, SharedRows, level_sums

X = np.array([[0.1, 0.2], [0.4, 0.9], [0.7, 0.3], [0.8, 0.8], [0.25, 0.55]])
Z = np.array([0.5, -1.0, 1.2, 0.3, -0.4])
SCALES = np.array([0.4, 0.7])
AT = np.array([[0.3, 0.3], [0.9, 0.1]])
ROWS = SharedRows(X, Z, SCALES)
# the same rows, and two of the agent's own among them
HALF_HIDDEN = SharedRows(
    np.insert(X, [0, 3], 0.45, axis=0), np.insert(Z, [0, 3], [9.0, -9.0]), SCALES
).others(np.array([1, 2, 3, 5, 6]))


def k(a, b, scales=SCALES):
    return gp.kernel("matern52", a, b, scales)


@pytest.mark.parametrize("rows", [ROWS, HALF_HIDDEN], ids=["of others", "own ones taken out"])
@pytest.mark.parametrize("share", [0.0, 0.95])
def test_the_trend_is_gaussian_conditioning(share, rows):
    a = share * k(X, X) + (1 - share + trend.LEAST_NOISE) * np.eye(len(X))
    b = share * k(AT, X)
    cross = rows.cross(AT)
    mean, reduction = rows.moments(cross, share)
    for found in (mean, rows.mean(cross, share)):
        np.testing.assert_allclose(found, b @ np.linalg.solve(a, Z), atol=1e-12)
    np.testing.assert_allclose(reduction, b @ np.linalg.solve(a, b.T), atol=1e-12)
    solved, inverse = rows.solve(share)
    np.testing.assert_allclose(solved, np.linalg.solve(a, Z), atol=1e-11)
    np.testing.assert_allclose(inverse, np.linalg.inv(a), atol=1e-10)


def test_the_share_is_its_posterior_mean_by_brute_force():
    x, y, tau, noise = np.array([[0.5, 0.5], [0.2, 0.9], [0.6, 0.1]]), np.array([0.7, -0.9, 1.1]), 0.4, 1e-2
    logs = np.array(trend.LOG_PRIOR)
    for place, share in enumerate(trend.SHARES):
        joint = np.concatenate([X, x])
        covariance = share * k(joint, joint)
        covariance[:5, :5] += (1 - share + trend.LEAST_NOISE) * np.eye(5)
        covariance[5:, 5:] += (1 - share) * k(x, x) + tau + noise * np.eye(3)
        both = stats.multivariate_normal(np.zeros(8), covariance).logpdf(np.concatenate([Z, y]))
        rows = stats.multivariate_normal(np.zeros(5), covariance[:5, :5]).logpdf(Z)
        logs[place] += both - rows  # of own values, given the rows
    weights = np.exp(logs - logs.max())
    expected = weights @ trend.SHARES / weights.sum()
    found = trend.share_of(ROWS, x, y, tau, noise)
    assert found == pytest.approx(expected, rel=1e-9)


def test_lengthscales_are_found_from_rows_alone():
    rng = np.random.default_rng(3)
    x = rng.random((100, 2))
    scales = np.array([0.15, 1.5])
    z = np.linalg.cholesky(k(x, x, scales) + 1e-2 * np.eye(100)) @ rng.standard_normal(100)
    found = np.exp(trend.fitted_lengthscales(x, z, None)[:2])
    assert found[0] < 0.3
    assert found[1] > 0.7


def test_the_best_half_and_the_newest_others_are_kept():
    z = np.random.default_rng(4).permutation(300).astype(float)
    kept = trend.most_useful(z, 128)
    best = np.argsort(-z)[:64]
    newest = [i for i in range(300) if i not in best][-64:]
    assert set(kept.tolist()) == {*best.tolist(), *newest}
    assert (np.diff(kept) > 0).all()
    several = np.column_stack([np.arange(200.0), -np.arange(200.0)])  # the best in any of them
    assert trend.most_useful(several, 8).tolist() == [0, 1, 194, 195, 196, 197, 198, 199]


# -- units --------------------------------------------------------------------------------------------


def sums_of(values, seed=0):
    """The sums that agents with these values tell."""
    rng = np.random.default_rng(seed)
    return np.sum([level_sums(np.array(v), rng) for v in values], axis=0)


def test_units_are_those_that_an_independent_program_found(monkeypatch):
    monkeypatch.setattr(trend, "MEAN_NOISE", 0.0)
    monkeypatch.setattr(trend, "LOG_NOISE", 0.0)
    values = [[1.0, 2.0], [3.0, 2.5], [0.0, 1.5], [2.0, 2.2]]
    level = Level.of(sums_of(values), 2)
    assert level.mean == pytest.approx(1.775)
    # it rounds the expected logarithm of a chi square to three digits
    assert level.variance == pytest.approx(0.6895561336151473, rel=1e-3)
    means = np.mean(values, axis=1)
    tau = max(means.var(ddof=1) / level.variance - 0.5, 0.0) + 0.5 / 4
    assert level.tau == pytest.approx(tau)


def test_standardised_values_are_centred_at_the_posterior_mean_of_the_level():
    level, y = Level(1.0, 0.7, 2.0, 3.0), np.array([1.0, 2.0, 4.0])
    s = k(X[:3], X[:3]) + trend.WHITE * np.eye(3) + 0.7
    r = y - 1.0
    scale = np.sqrt((3.0 * 2.0 + r @ np.linalg.solve(s, r)) / (3.0 + 3))
    shift = 0.7 * np.ones(3) @ np.linalg.solve(s, r)
    z, tau = level.standardise(X[:3], y, SCALES)
    np.testing.assert_allclose(z, (r - shift) / scale, rtol=1e-12)
    assert tau == 0.7


def test_sums_of_first_values_are_unbiased_for_scale_and_levels():
    rng, agents = np.random.default_rng(5), 4_000
    levels, scale = 5.0 + 2.0 * rng.standard_normal(agents), np.exp(0.3)
    values = levels[:, None] + scale * rng.standard_normal((agents, 3))
    total = sums_of(values)
    assert total[3] / agents == pytest.approx(0.6, abs=0.1)  # twice the logarithm of the scale
    level = Level.of(total, 3)
    assert level.mean == pytest.approx(5.0, abs=0.1)
    assert level.tau == pytest.approx(4.0 / np.exp(0.6), rel=0.15)


def test_what_an_agent_tells_of_its_values_has_noise_of_the_stated_size():
    values, rng = np.array([1.0, 4.0, 2.0]), np.random.default_rng(9)
    told = np.array([level_sums(values, rng) for _ in range(4000)])
    for entry, stddev in ((1, trend.MEAN_NOISE * values.std(ddof=1)), (3, trend.LOG_NOISE)):
        assert stats.kstest((told[:, entry] - told[:, entry].mean()) / stddev, "norm").pvalue > 0.01
    assert told[:, 1].mean() == pytest.approx(values.mean(), abs=0.05)
    np.testing.assert_allclose(told[:, [2, 4]], told[:, [1, 3]] ** 2, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("values", [[], [1.0], [0.5, 0.5], [1e9, 0.0], [np.nan, 1.0]])
def test_an_agent_without_two_ordinary_values_sends_no_moments(values):
    assert not sums_of([values]).any()


@pytest.mark.parametrize("entry", [2, 3])
def test_one_liar_cannot_move_the_scale_of_all_by_more_than_each_can_see(entry):
    rng = np.random.default_rng(7)
    honest = sums_of(rng.standard_normal((8, 2)))
    for lie in (30.0, -1e3, 1e16, -1e16):
        total = honest.copy()
        total[entry] += lie
        z, _ = Level.of(total, 2).standardise(X, np.array([1.0, 2.0, 3.0, 0.0, -1.0]), SCALES)
        assert 0.2 < np.ptp(z) <= 2 * trend.LARGEST


@pytest.mark.parametrize("y", [[1e307, -1e307], [1e-200, 2e-200], [3.0]])
def test_values_of_any_size_become_finite(y):
    for level in (Level(), Level(0.0, 0.5, 1.0, 2.0), Level(0.0, 0.5, 1e-30, 2.0)):
        z, tau = level.standardise(X[: len(y)], np.array(y), SCALES)
        assert np.isfinite(z).all()
        assert np.abs(z).max() <= trend.LARGEST
        assert tau > 0


@pytest.mark.parametrize("least", [-1e9, -0.3, 40.0])
@pytest.mark.parametrize("level", [Level(), Level(0.0, 0.5, 1.0, 2.0)])
def test_the_same_values_hold_a_limit_in_common_units(level, least):
    y = np.array([0.0, 0.5, 1.0, -0.3, -30.0, 60.0])
    units = level.units(np.random.default_rng(8).random((6, 2)), y, SCALES)
    found, bound = units.limited(y, least)
    np.testing.assert_array_equal(found >= bound, y >= least)
    assert np.abs([*found, bound]).max() <= trend.LARGEST + 1.0
    ordinary = np.abs(units(y)) <= trend.LARGEST
    if abs(bound) < trend.LARGEST:
        np.testing.assert_array_equal(found[ordinary], units(y)[ordinary])
