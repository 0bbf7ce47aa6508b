"""Categories are compared as the one-hot columns that they stand for, without these columns."""

import numpy as np
import pytest

from fbo_flower.numerics.acquisition import expected_improvement, guided
from fbo_flower.numerics.categories import FIRST_CATEGORY
from fbo_flower.numerics.optim.functions import sample_paths, stack_of
from fbo_flower.numerics.optim.maximise import keeps_distance
from fbo_flower.numerics.surrogates import fitting, gp, rff, trend

CHOICES = 4
SCALES = np.array([0.3, 0.8, 0.5])  # of a number, a category and a number
H = gp.Hyperparameters("matern52", SCALES, 1.3, 0.02)
WIDE = gp.Hyperparameters("matern52", np.repeat(SCALES, [1, CHOICES, 1]), 1.3, 0.02)


def points(count, seed):
    found = np.random.default_rng(seed).random((count, 3))
    found[:, 1] = FIRST_CATEGORY + np.floor(CHOICES * found[:, 1])
    found[0, 1] = FIRST_CATEGORY  # the smallest one
    return found


def one_hot(x):
    chosen = np.sqrt(0.5) * (x[..., 1:2] - FIRST_CATEGORY == np.arange(CHOICES))
    return np.concatenate([x[..., :1], chosen, x[..., 2:]], axis=-1)


X, Z, Y = points(12, 0), points(9, 1), np.sin(np.arange(12.0))
PATH = sample_paths(X[None], Y[None], [H], 8, [np.random.default_rng(2)])[0]


def shared(x, h):
    rows = trend.SharedRows(x[:7], Y[:7], h.lengthscales)
    mean, covariance = (own := guided.Shared(rows, 0.6, 0.1)).prior(x[7:])
    process = gp.condition(x[None, 7:], (Y[7:] - mean)[None], [h], covariance[None])[0]
    return guided.GuidedImprovement(process, 0.4, own)


def slopes(function, z):
    """Return values and the gradients of the numbers."""
    value, gradient = function.value_and_gradient(z)
    return value, gradient[..., [0, -1]]


CASES = {
    "kernel": lambda x, z, h: gp.kernel("rbf", z, x, h.lengthscales),
    "covariances": lambda x, z, h: gp.covariances(x[None], [h]),
    "posterior": lambda x, z, h: gp.posterior(x, Y, h).predict(z),
    "likelihood": lambda x, z, h: gp.log_marginal_likelihood(x, Y, h)[0],
    "log EI of a batch of losses": lambda x, z, h: slopes(
        expected_improvement.LogImprovement(gp.posterior(x, Y, h), 0.4), z
    ),
    "log EI": lambda x, z, h: slopes(guided.GuidedImprovement(gp.posterior(x, Y, h), 0.4), z),
    "log EI over a trend": lambda x, z, h: slopes(shared(x, h), z),
    "distance": lambda x, z, h: keeps_distance(z[None], x[None], 0.5),
}


@pytest.mark.parametrize("case", CASES)
def test_a_category_counts_as_its_one_hot_columns(case):
    found, expected = CASES[case](X, Z, H), CASES[case](one_hot(X), one_hot(Z), WIDE)
    parts = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for part, oracle in parts:
        np.testing.assert_allclose(part, oracle, rtol=1e-9, atol=1e-11)


def test_the_update_of_a_path_counts_a_category_as_its_one_hot_columns():
    path = stack_of([PATH])
    prior = (path.prior.exact(Z[None]) @ path.prior.weights[:, :, None])[:, :, 0]
    update = gp.kernel("matern52", Z, X, SCALES) @ PATH.coefficients
    np.testing.assert_allclose(path.values(Z[None]) - prior, update[None], rtol=1e-9)
    np.testing.assert_allclose(path.scores(Z[None]), path.values(Z[None]), atol=2e-5)
    np.testing.assert_allclose(path.value_and_gradient(Z[None])[0], path.values(Z[None]), atol=2e-5)


def test_random_features_of_categories_approximate_the_kernel():
    exact, categories = gp.kernel("matern52", Z, X, SCALES), np.array([1])
    features = rff.draw_features(20_000, SCALES, 3, np.random.default_rng(3), "matern52", categories)
    assert np.abs(features.cosines(Z) @ features.cosines(X).T * (2.0 / 20_000) - exact).max() < 0.04
    again = rff.RandomFeatures(features.frequencies.copy(), features.phases.copy())
    np.testing.assert_array_equal(again.cosines(Z), features.cosines(Z))


def test_one_lengthscale_belongs_to_a_category_of_any_number_of_choices():
    """The values depend on the category alone, so its lengthscale is the shortest."""
    rng = np.random.default_rng(5)
    x = rng.random((40, 3))
    x[:, 1] = FIRST_CATEGORY + rng.integers(0, 10, 40) * 1000
    y = rng.standard_normal(10)[(x[:, 1].astype(int) - FIRST_CATEGORY) // 1000]
    theta = fitting.fit_one(x, y, "matern52").lengthscales
    assert len(theta) == 3
    assert theta[1] < 0.5 * min(theta[0], theta[2])
