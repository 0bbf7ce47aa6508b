import numpy as np
import pytest
from acquisition_cases import fantasies, frazier, gaussian_process, mesh, random_belief
from hypothesis import given
from hypothesis import strategies as st

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.acquisition import knowledge_gradient as kg


@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("seed", range(9))
def test_every_point_has_the_value_of_the_scalar_algorithm(seed, noisy):
    mean, factor, noise_variance = random_belief(seed, 3 + 5 * seed)
    covariance, noise_variance = factor @ factor.T, noise_variance * noisy
    total = covariance.diagonal() + noise_variance
    slopes = np.divide(covariance, np.sqrt(total), out=np.zeros_like(covariance), where=total > 0)
    exact = [frazier(mean, slopes[:, x]) for x in range(len(mean))]
    found = kg.knowledge_gradient_from_factor(mean, factor, noise_variance)
    np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-14)


def test_values_lie_within_four_standard_errors_of_many_draws():
    rng = np.random.default_rng(0)
    mean, factor = gaussian_process(mesh(5), 0.3, 4, 0.05, rng)
    exact = kg.knowledge_gradient_from_factor(mean, factor, 0.05)
    draws = rng.standard_normal((200_000, 1))
    for x in (0, int(exact.argmax())):
        sample = fantasies(mean, factor @ factor.T, 0.05, [x], draws).max(axis=1) - mean.max()
        assert abs(sample.mean() - exact[x]) < 4 * sample.std() / np.sqrt(len(draws))


def test_blocks_of_points_give_what_all_points_give_at_once(monkeypatch):
    mean, factor = gaussian_process(mesh(12), 0.2, 10, 0.02, np.random.default_rng(0))
    whole = kg.knowledge_gradient_from_factor(mean, factor, 0.02)
    monkeypatch.setattr(kg, "BLOCK", 1000)
    np.testing.assert_allclose(kg.knowledge_gradient_from_factor(mean, factor, 0.02), whole, rtol=1e-12)


def test_cases_by_hand():
    # s = 4 / sqrt(4 + 5) = 4/3 at the first point, breakpoint 3/4, h(-3/4) = .3011374 - 3/4 * .2266274
    gains = kg.knowledge_gradient_from_factor(np.array([0.0, 1.0]), np.diag([2.0, 0.0]), 5.0)
    np.testing.assert_allclose(gains, [4 / 3 * 0.1311669, 0], rtol=1e-6)
    # equal means earn the expected range: max of +xi and -xi is |xi|
    gains = kg.knowledge_gradient_from_factor(np.zeros(2), np.array([[1.0], [-1.0]]), 0.0)
    np.testing.assert_allclose(gains, np.sqrt(2 / np.pi))


def test_nothing_is_learnt_from_one_point_from_certainty_or_from_a_common_shift():
    for factor in (np.full((1, 1), 2.0), np.zeros((3, 3)), np.ones((3, 1)), np.zeros((3, 0))):
        gains = kg.knowledge_gradient_from_factor(np.arange(float(len(factor))), factor, 0.1)
        assert gains.tolist() == [0.0] * len(factor)


def test_hopeless_gains_keep_their_order():
    # far below the best mean: gains of 1e-80 and less, which differences of expectations would lose
    mean = np.array([0.0, -20.0, -20.5, -21.0])
    gains = kg.knowledge_gradient_from_factor(mean, np.diag([0.0, 1.0, 1.0, 1.0]), 0.0)
    assert gains[1] > gains[2] > gains[3] > 0
    assert gains[1] < 1e-80


@given(st.integers(0, 10_000), st.floats(0.01, 100), st.floats(-10, 10) | st.just(1e9))
def test_gains_scale_with_the_unit_and_ignore_the_origin(seed, unit, origin):
    mean, factor, noise_variance = random_belief(seed, 8)
    gains = kg.knowledge_gradient_from_factor(mean, factor, noise_variance)
    other = kg.knowledge_gradient_from_factor(unit * mean + origin, unit * factor, unit**2 * noise_variance)
    np.testing.assert_allclose(other, unit * gains, rtol=1e-6, atol=1e-10 * unit + 1e-15 * abs(origin))
    assert (gains >= 0).all()


def test_wrong_shapes_and_negative_noise_are_refused():
    for size, columns, noise, message in (
        (3, 2, 0.1, "factor"),
        (3, 3, -0.1, "noise"),
        (0, 0, 0.1, "points"),
    ):
        with pytest.raises(ConfigError, match=message):
            kg.knowledge_gradient_from_factor(np.zeros(size), np.eye(columns), noise)
