import math

import numpy as np
import pytest
from every_problem import *  # noqa: F403
from every_xarmed import *  # noqa: F403

from fbo_flower.errors import ObjectiveError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import DigitsSVM, GPSamples, make_problem
from fbo_flower.simulation.problems.digits import _parts
from fbo_flower.simulation.problems.functions import DoubleSine, Garland, Himmelblau
from fbo_flower.simulation.problems.gp_samples import sample_on_grid

# digits-svm


def test_digits_accuracy_is_that_of_scikit_learn_on_the_agents_rows():
    from sklearn.datasets import load_digits
    from sklearn.svm import SVC

    from fbo_flower.simulation.partitioners import train_validation

    problem = DigitsSVM(20, 7)
    pixels, labels = load_digits(return_X_y=True)
    rows = _parts(problem)[4]
    train, validation = train_validation(labels[rows], 0.6, generator(7, "digits-svm", "split", 4))
    model = SVC(C=2.0, gamma=0.02).fit(pixels[rows][train] / 16, labels[rows][train])
    expected = model.score(pixels[rows][validation] / 16, labels[rows][validation])
    assert problem.true_value({"C": 2.0, "gamma": 0.02}, 4) == expected


@pytest.mark.parametrize(("dimension", "lengthscale", "wrong"), [(1, 2.0, 0.7), (2, 0.3, 0.1)])
def test_samples_have_the_covariance_of_the_kernel(dimension, lengthscale, wrong):
    num_draws, size = 1000, 11
    rngs = [generator(0, "draw", i) for i in range(num_draws)]
    draws = np.stack([sample_on_grid(size, dimension, lengthscale, rng).ravel() for rng in rngs])
    axes = np.meshgrid(*[np.linspace(0, 1, size)] * dimension, indexing="ij")
    grid = np.stack([axis.ravel() for axis in axes], axis=1)
    squares = ((grid[:, None] - grid[None]) ** 2).sum(axis=2)
    covariance = np.exp(-0.5 * squares / lengthscale**2)
    # an entry of the sample covariance has a standard deviation of at most sqrt(2 / num_draws)
    bound = 5 * np.sqrt(2 / num_draws)
    assert np.abs(draws.T @ draws / num_draws - covariance).max() < bound
    control = np.exp(-0.5 * squares / wrong**2)  # the same check fails for another kernel
    assert np.abs(draws.T @ draws / num_draws - control).max() > bound
    assert np.abs(draws.mean(axis=0)).max() < 5 / np.sqrt(num_draws)


def test_the_optimum_is_attained():
    problem = GPSamples(6, 3, dimension=2, unrelated_fraction=0.4)
    for partition in range(6):
        values = problem.values(partition)
        best = np.unravel_index(int(values.argmax()), values.shape)
        x0, x1 = (int(i) / (size - 1) for i, size in zip(best, values.shape, strict=True))
        found = problem.true_value({"x0": x0, "x1": x1}, partition)
        assert found == problem.optimum(partition) == values.max()
    for outside in (-0.01, 1.01, float("nan")):
        with pytest.raises(ObjectiveError, match=r"expected a number in \[0, 1\]"):
            problem.true_value({"x0": outside, "x1": 0.5}, 0)


@pytest.mark.parametrize(("dimension", "offset"), [(2, "sign"), (1, "smooth")])
def test_a_related_agent_differs_from_the_target_by_d_n_at_every_point_or_smoothly(dimension, offset):
    options = {"difference": 0.3, "dimension": dimension, "lengthscale": 0.2, "offset": offset}
    problem = make_problem("gp-samples", 4, 0, options)
    assert (problem.values(0).min(), problem.values(0).max()) == (0.0, 1.0), "the target is scaled"
    for partition in (1, 2, 3):
        differences = problem.values(partition) - problem.values(0)
        if offset == "smooth":
            assert np.abs(differences).max() == pytest.approx(0.3)
            assert np.abs(np.diff(differences)).max() < 0.1
        else:
            assert np.abs(differences) == pytest.approx(0.3)
            assert 0.4 < np.mean(differences > 0) < 0.6


def test_the_unrelated_share_counts_from_the_last_agent_and_spares_the_target():
    problem = GPSamples(11, 0, unrelated_fraction=0.3)
    assert [problem.is_related(k) for k in range(11)] == [True] * 8 + [False] * 3
    for partition in range(1, 11):
        distance = np.abs(problem.values(partition) - problem.values(0)).max()
        assert (distance < 0.021) == problem.is_related(partition)
    assert GPSamples(11, 0, unrelated_fraction=1.0).is_related(0)
    assert np.array_equal(GPSamples(11, 1, function_seed=0).values(2), problem.values(2))
    assert not np.array_equal(problem.values(9), problem.values(10))


def at(problem, *points):
    return problem.values(np.array(points, dtype=float), 0)


def test_values_and_optima_worked_by_hand():
    still = {"shift_stddev": 0.0}
    best = {Garland: 2 * math.pi / 3 * (1 - math.pi / 6), DoubleSine: 1.0, Himmelblau: 1.0}
    for problem_class, value in best.items():
        assert problem_class(1, 0, **still).optimum(0) == pytest.approx(value, abs=1e-9)
    assert at(Garland(1, 0, **still), [np.pi / 6]) == pytest.approx(0.9977723791254, abs=1e-7)
    assert at(DoubleSine(1, 0, **still), [0.5], [1.0]) == pytest.approx([1.0, 0.0])
    # u = 1/4: log2 u = -2, the sine is 0, envelopes .3^2 and .8^2 (u^e = 2^(2 log2 .))
    assert at(DoubleSine(1, 0, **still), [0.625])[0] == pytest.approx((0.64 - 0.09) / 2 - 0.64 + 1)
    assert at(Himmelblau(1, 0, **still), [0.8, 0.7], [0.5, 0.5]) == pytest.approx([1.0, 1 - 170 / 890])
    # (-5, -5): 9^2 + 13^2 = 250; (5, 5): 19^2 + 23^2 = 890
    assert at(Himmelblau(1, 0, **still), [0.0, 0.0], [1.0, 1.0]) == pytest.approx([1 - 250 / 890, 0.0])
