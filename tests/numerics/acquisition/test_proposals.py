import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition import pareto
from fbo_flower.numerics.acquisition.log_ei import moments
from fbo_flower.numerics.acquisition.proposals import (
    KERNEL,
    merge_equal,
    next_point,
    plan_improvement,
    plan_volume_improvement,
)
from fbo_flower.numerics.surrogates import gp


def rng(seed=0):
    return np.random.default_rng(seed)


def improvement(x, losses, rng, kernel=KERNEL):
    return plan_improvement(x, losses).fitted(kernel, rng)


def volume_improvement(x, losses, rng, reference=None):
    return plan_volume_improvement(x, losses, reference).fitted(KERNEL, rng)


def bowl(x, centre):
    return ((x - centre) ** 2).sum(axis=1)


def two_losses(x):
    return np.stack([bowl(x, 0.3), bowl(x, 0.7)], axis=1)


X = rng(1).random((25, 2))
Z = rng(2).random((30, 2))


def slopes(function, z, step=1e-6):
    columns = []
    for j in range(z.shape[1]):
        shift = step * np.eye(z.shape[1])[j]
        columns.append((function(z + shift) - function(z - shift)) / (2 * step))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_moments_are_the_prediction_and_their_gradients_its_slopes(kernel):
    h = gp.Hyperparameters(kernel, np.array([0.3, 0.5]), 1.3, 0.01)
    process = gp.posterior(X, np.sin(5 * X[:, 0]), h)
    mean, stddev, mean_slope, stddev_slope = moments(process, Z)
    expected_mean, variance = process.predict(Z)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-10)
    np.testing.assert_allclose(stddev, np.sqrt(variance), atol=1e-8)
    np.testing.assert_allclose(mean_slope, slopes(lambda z: process.predict(z)[0], Z), atol=1e-5)
    np.testing.assert_allclose(stddev_slope, slopes(lambda z: np.sqrt(process.predict(z)[1]), Z), atol=1e-5)


def test_the_improvement_is_the_mean_over_draws_of_the_posterior():
    surface = improvement(X[:4], bowl(X[:4], 0.4), rng())
    z = Z[np.argsort(surface(Z))[-5:]]
    mean, variance = surface.posterior.predict(z)
    draws = mean + np.sqrt(variance) * rng(3).standard_normal((200_000, 1))
    gain = np.maximum(draws - surface.best, 0.0)
    error = gain.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(np.exp(surface(z)) - gain.mean(axis=0)) < 4.5 * error).all()
    assert (gain.mean(axis=0) > 10 * error).all()


@pytest.mark.parametrize("kind", ["one", "two"])
def test_values_and_gradients_agree_with_each_other(kind):
    if kind == "one":
        surface = improvement(X, bowl(X, 0.4), rng())
    else:
        surface = volume_improvement(X, two_losses(X), rng())
    values, gradients = surface.value_and_gradient(Z)
    np.testing.assert_allclose(values, surface(Z), atol=1e-6)
    expected = slopes(surface, Z)
    likely = values > values.max() - 20
    assert likely.sum() > 5
    np.testing.assert_allclose(gradients[likely], expected[likely], rtol=1e-3, atol=1e-3)


def test_the_volume_improvement_is_the_mean_over_draws_of_both_posteriors():
    surface = volume_improvement(X, two_losses(X), rng())
    z = Z[np.argsort(surface(Z))[-2:]]
    generator = rng(3)
    for row, value in zip(z, np.exp(surface(z)), strict=True):
        losses = []
        for posterior in surface.posteriors:
            mean, variance = posterior.predict(row[None])
            losses.append(-(mean + np.sqrt(variance) * generator.standard_normal(3000)))
        before = pareto.hypervolume(surface.losses, surface.reference)
        gains = [
            pareto.hypervolume(np.vstack([surface.losses, pair]), surface.reference) - before
            for pair in np.stack(losses, axis=1)
        ]
        assert value == pytest.approx(np.mean(gains), abs=4.5 * np.std(gains) / np.sqrt(len(gains)))
        assert np.mean(gains) > 0


def noisy_losses(seed):
    return two_losses(X) + 0.1 * rng(seed).standard_normal((len(X), 2))


def scikit_moments(posterior, z):
    """Mean and deviation of scikit-learn's process with the same kernel, noise and data."""
    h = posterior.hyperparameters
    kernel = ConstantKernel(h.outputscale) * Matern(h.lengthscales, nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=h.noise_variance, optimizer=None)
    return process.fit(posterior.x, posterior.y).predict(z, return_std=True)


def strips(means, stddevs, front, corner):
    """The closed form of two losses, strip by strip: width opened by the first times gain of the second."""

    def gain(edge, j):
        z = (edge - means[:, j]) / stddevs[:, j]
        return stddevs[:, j] * (z * norm.cdf(z) + norm.pdf(z))

    total, before, height = 0.0, 0.0, corner[1]
    for first, second in [*sorted(front[(front < corner).all(axis=1)].tolist()), [corner[0], -np.inf]]:
        if second < height:
            total = total + (gain(first, 0) - before) * gain(height, 1)
            before, height = gain(first, 0), second
    return total


@pytest.mark.parametrize("reference", [None, np.array([1.0, 1.0])])
def test_the_volume_improvement_is_that_of_a_plain_reference(reference):
    losses = noisy_losses(4)
    surface = volume_improvement(X, losses, rng(), reference=reference)
    at_points, at_z = ([scikit_moments(p, z) for p in surface.posteriors] for z in (X, Z))
    front = -np.stack([mean for mean, _ in at_points], axis=1)  # posterior means, not what was observed
    if reference is None:
        kept = front[pareto.non_dominated(front)]
        corner = kept.max(axis=0) + 0.1 * np.ptp(losses, axis=0) / losses.std(axis=0)
    else:
        corner = (reference - losses.mean(axis=0)) / losses.std(axis=0)
    means, stddevs = (np.stack([sign * m[i] for m in at_z], axis=1) for i, sign in ((0, -1.0), (1, 1.0)))
    np.testing.assert_allclose(
        np.exp(surface(Z)), strips(means, stddevs, front, corner), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_reference_point_lies_beyond_the_whole_front_of_posterior_means(seed):
    surface = volume_improvement(X, noisy_losses(seed), rng())
    front = surface.losses[pareto.non_dominated(surface.losses)]
    assert (front < surface.reference).all()


def test_the_observed_front_would_have_cut_off_the_ends_of_the_believed_one():
    cut = 0
    for seed in range(5):
        losses = noisy_losses(seed)
        surface = volume_improvement(X, losses, rng())
        observed = (losses - losses.mean(axis=0)) / losses.std(axis=0)
        corner = observed[pareto.non_dominated(observed)].max(axis=0) + 0.1 * np.ptp(observed, axis=0)
        front = surface.losses[pareto.non_dominated(surface.losses)]
        cut += not (front < corner).all()
    assert cut > 0


def minimise(seed, num_trials=20, noise=0.0):
    generator = rng(seed)
    x = generator.random((5, 2))
    while len(x) < num_trials:
        losses = bowl(x, 0.4) + noise * rng(len(x)).standard_normal(len(x))
        x = np.vstack([x, next_point(improvement(x, losses, generator), x, generator).x])
    return bowl(x, 0.4)


def test_the_minimum_of_a_bowl_is_found_in_20_trials():
    found = [minimise(seed).min() for seed in range(3)]
    drawn = [bowl(rng(seed).random((20, 2)), 0.4).min() for seed in range(3)]
    assert max(found) < 1e-3
    assert min(drawn) > 1e-3  # chance does not get there


def test_the_front_of_two_bowls_is_found_better_than_by_chance():
    def area(x):
        return pareto.hypervolume(two_losses(x), np.array([0.4, 0.4]))

    generator = rng(5)
    x = generator.random((6, 2))
    while len(x) < 25:
        surface = volume_improvement(x, two_losses(x), generator)
        x = np.vstack([x, next_point(surface, x, generator).x])
    by_chance = [area(rng(seed).random((25, 2))) for seed in range(20)]
    assert area(x) > max(by_chance)


def test_a_proposal_keeps_its_distance_from_points_seen():
    x = rng(1).random((40, 1))
    found = next_point(improvement(x, bowl(x, 0.4), rng()), x, rng(), min_distance=0.005)
    assert np.abs(x - found.x).min() >= 0.005
    assert found.avoided


def check_proposals(x, losses):
    for surface in (
        improvement(x, losses[:, 0], rng()),
        volume_improvement(x, losses, rng()),
        volume_improvement(x, losses, rng(), reference=np.array([1.0, 1.0])),
    ):
        found = next_point(surface, x, rng(3), num_candidates=64)
        assert np.isfinite(found.value)
        assert ((found.x >= 0) & (found.x <= 1)).all()


SPREAD = rng(7).random((60, 2))
ONE_POINT = np.full((60, 2), 0.3)
AWKWARD = {
    "60 identical losses": (SPREAD, np.full((60, 2), 0.37)),
    "60 zeros": (SPREAD, np.zeros((60, 2))),
    "60 identical points and losses": (ONE_POINT, np.full((60, 2), 0.37)),
    "60 identical points, 60 losses": (ONE_POINT, rng(8).random((60, 2))),
    "ties but for rounding": (SPREAD, 0.37 + 1e-17 * rng(9).standard_normal((60, 2))),
    "ties but for an ulp": (SPREAD, np.nextafter(0.37, rng(9).integers(2, size=(60, 2)))),
    "points but for rounding": (0.3 + 1e-16 * rng(10).standard_normal((60, 2)), rng(8).random((60, 2))),
    "two levels": (SPREAD, np.where(SPREAD > 0.5, 0.37, 0.5)),
    "one loss stands out": (SPREAD, np.where(np.arange(120).reshape(60, 2) == 17, 1e12, 0.1)),
    "one point": (SPREAD[:1], SPREAD[:1]),
    "tiny losses": (SPREAD, 1e-300 * rng(8).random((60, 2))),
    "one loss is constant": (SPREAD, np.stack([SPREAD[:, 0], np.full(60, 0.2)], axis=1)),
    "the same loss twice": (SPREAD, np.stack([SPREAD[:, 0], SPREAD[:, 0]], axis=1)),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_losses_still_give_a_point(case):
    check_proposals(*AWKWARD[case])


@settings(max_examples=40)
@given(
    arrays(np.float64, (12, 2), elements=st.sampled_from([0.0, 0.2, 0.2 + 1e-12, 0.7, 1.0])),
    arrays(np.float64, (12, 2), elements=st.sampled_from([0.0, 0.25, 0.25 + 1e-17, 0.25 + 1e-9, 1.0])),
)
def test_any_pattern_of_ties_gives_a_point(x, losses):
    check_proposals(x, losses)


def test_equal_losses_send_the_search_far_from_points_seen():
    x = rng(1).random((10, 2)) * 0.3
    found = next_point(improvement(x, np.full(10, 0.5), rng()), x, rng())
    assert np.linalg.norm(x - found.x, axis=1).min() > 0.4


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_the_noise_of_a_loss_is_fitted(share):
    x = rng(1).random((60, 2))
    signal = bowl(x, 0.4) / bowl(x, 0.4).std()
    fitted = [
        improvement(
            x, signal + np.sqrt(share / (1 - share)) * rng(seed).standard_normal(60), rng()
        ).posterior.hyperparameters.noise_variance
        for seed in range(8)
    ]
    assert np.median(fitted) == pytest.approx(share, rel=0.4)  # of the standardised loss's variance


def test_the_incumbent_is_what_the_surrogate_believes_not_a_lucky_loss():
    x = np.linspace(0, 1, 40)[:, None]
    losses = bowl(x, 0.3) + 0.02 * rng(1).standard_normal(40)
    losses[35] = -0.2  # far from the minimum
    surface = improvement(x, losses, rng())
    assert surface.best < (losses.mean() - losses[35]) / losses.std()


def test_the_incumbent_may_be_the_best_observation():
    losses = bowl(X, 0.3) + 0.1 * rng(1).standard_normal(len(X))
    believed, observed = (
        plan_improvement(X, losses, best).fitted("matern52", rng()) for best in ("mean", "observed")
    )
    assert observed.best == pytest.approx((losses.mean() - losses.min()) / losses.std())
    assert believed.best == pytest.approx(believed.posterior.predict(X)[0].max())
    assert believed.best < observed.best
    assert plan_improvement(X, losses).fitted("matern52", rng()).best == believed.best


def test_equal_points_are_merged_in_their_order_and_their_losses_averaged():
    x = np.array([[0.5, 0.1], [0.2, 0.2], [0.5, 0.1], [0.2, 0.3]])
    different, losses = merge_equal(x, np.array([[1.0], [2.0], [3.0], [4.0]]))
    assert different.tolist() == [[0.5, 0.1], [0.2, 0.2], [0.2, 0.3]]
    assert losses.ravel().tolist() == [2.0, 2.0, 4.0]


@given(st.permutations(range(12)), st.integers(0, 100))
def test_merging_does_not_depend_on_the_order(order, seed):
    x = rng(seed).integers(0, 3, (12, 2)) / 2
    losses = rng(seed + 1).random((12, 1))
    one, other = merge_equal(x, losses), merge_equal(x[list(order)], losses[list(order)])
    as_rows = [sorted(map(tuple, np.hstack(pair).round(12).tolist())) for pair in (one, other)]
    assert as_rows[0] == as_rows[1]


def test_the_same_seed_gives_the_same_point():
    losses = bowl(X, 0.4)
    points = [next_point(improvement(X, losses, rng(1)), X, rng(1)).x for _ in range(2)]
    assert points[0].tolist() == points[1].tolist()


def test_malformed_losses_are_refused():
    with pytest.raises(ConfigError, match="losses"):
        improvement(np.zeros((0, 2)), np.zeros(0), rng())
    with pytest.raises(ConfigError, match="losses"):
        improvement(np.zeros((3, 2)), np.zeros(2), rng())
    with pytest.raises(ConfigError, match="incumbent: expected one of mean, observed"):
        plan_improvement(X, bowl(X, 0.3), "best")
    with pytest.raises(ConfigError, match="finite"):
        improvement(np.zeros((1, 2)), np.array([np.nan]), rng())
