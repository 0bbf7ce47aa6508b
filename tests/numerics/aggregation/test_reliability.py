import numpy as np
import pytest
from acquisition_cases import mesh
from hypothesis import given, settings
from hypothesis import strategies as st

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.aggregation.reliability import reliability
from fbo_flower.numerics.surrogates import gp

POINTS = mesh(8)
H = gp.Hyperparameters("rbf", np.full(2, 0.3), 1.2, 0.02)
SEEDS = 8


def f1(x):
    """The first function of the paper."""
    return (x**2).sum(axis=1) + np.sin(2.0 * np.pi * x[:, 0]) + np.cos(2.0 * np.pi * x[:, 1])


CENTRE, SCALE = f1(POINTS).mean(), f1(POINTS).std()
TRUTH = (f1(POINTS) - CENTRE) / SCALE


def beliefs(seed, bad="", num_agents=4, observations=12):
    """Posteriors of agents on the points; the first one is `bad`."""
    rng = np.random.default_rng(seed)
    means, covariances = [], []
    for n in range(num_agents):
        how = bad if n == 0 else ""
        x = POINTS[rng.integers(0, len(POINTS), observations)]
        if how == "started badly":
            x = 0.15 * rng.random((observations, 2))
        noise = (1.0 if how == "noisy" else np.sqrt(0.02) / SCALE) * rng.standard_normal(observations)
        belief = gp.posterior(x, (f1(x) - CENTRE) / SCALE + noise, H)
        mean, covariance = belief.predict(POINTS)[0], belief.covariance(POINTS)
        if how.startswith("sends noise"):
            mean = rng.standard_normal(len(POINTS))
        if how.endswith("and is sure"):
            covariance = 1e-6 * covariance
        means.append(mean)
        covariances.append(covariance)
    return np.array(means), np.array(covariances)


def errors(bad, num_agents=4):
    """Error of the central mean, root mean square over the points: by reliability and equal weights."""
    found = []
    for seed in range(SEEDS):
        means, covariances = beliefs(seed, bad, num_agents)
        weights = reliability(means, covariances)
        found.append([np.sqrt(np.mean((w - TRUTH) ** 2)) for w in (weights @ means, means.mean(axis=0))])
    return np.mean(found, axis=0)


@pytest.mark.parametrize("num_agents", [3, 8])
@pytest.mark.parametrize("bad", ["started badly", "noisy", "sends noise", "sends noise and is sure"])
def test_weights_help_when_one_agent_is_bad(bad, num_agents):
    weighted, equal = errors(bad, num_agents)
    assert weighted < 0.98 * equal


def test_weights_of_sound_agents_are_equal_and_do_not_hurt():
    weighted, equal = errors("")
    assert weighted < 1.01 * equal
    found = np.array([reliability(*beliefs(seed)) for seed in range(30)])
    assert np.mean(np.ptp(found, axis=1) < 1e-12) > 0.7  # most often exactly so
    np.testing.assert_allclose(found.mean(axis=0), 0.25, atol=0.03)


def test_claiming_certainty_gains_nothing():
    """A mean that others confirm and a claim of certainty: no more than the others."""
    found = [reliability(*beliefs(seed, " and is sure")) for seed in range(SEEDS)]
    assert max(weights[0] - weights[1:].max() for weights in found) < 1e-12
    naive = [beliefs(seed, " and is sure")[1].trace(axis1=1, axis2=2)[0] for seed in range(SEEDS)]
    assert max(naive) < 1e-3  # by its claim alone it would have all the weight


def test_one_absurd_message_moves_nobody_elses_weight():
    means, covariances = beliefs(0)
    for size in (1e3, 1e9):
        loud = means.copy()
        loud[0] = size
        weights = reliability(loud, covariances)
        assert weights[0] < 1e-5
        assert weights[1:].max() < 4.0 * weights[1:].min()


def test_weights_of_equal_beliefs_are_equal():
    means, covariances = beliefs(0)
    found = reliability(np.repeat(means[:1], 3, axis=0), np.repeat(covariances[:1], 3, axis=0))
    np.testing.assert_allclose(found, 1.0 / 3.0)
    np.testing.assert_allclose(reliability(np.zeros((2, 3)), np.zeros((2, 3, 3))), 0.5)
    np.testing.assert_array_equal(reliability(means[:1], covariances[:1]), 1.0)


def test_weights_by_hand():
    means = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 8.0]])  # squared distances 4, 64, 68
    covariances = np.array([np.eye(2), 0.5 * np.eye(2), 2.0 * np.eye(2)])  # traces 2, 1, 4
    shares = np.array([1.0, 1.0, 2.0 * 2.0 / 32.0])  # errors 2, 2, 32: the lower medians of distances, halved
    np.testing.assert_allclose(reliability(means, covariances), shares**2 / (shares**2).sum())


@settings(max_examples=15)
@given(st.permutations(range(5)), st.integers(0, 2**32))
def test_weights_follow_their_agents_and_ignore_units(order, seed):
    means, covariances = beliefs(seed, "noisy", 5)
    order = list(order)
    weights = reliability(means, covariances)
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(reliability(means[order], covariances[order]), weights[order], rtol=1e-9)
    np.testing.assert_allclose(reliability(10.0 * means, 100.0 * covariances), weights, rtol=1e-9)


@pytest.mark.parametrize(
    ("means", "covariances", "message"),
    [
        (np.zeros(3), np.zeros((1, 3, 3)), r"expected means \(N, S\)"),
        (np.zeros((2, 3)), np.zeros((2, 3)), r"expected means \(N, S\)"),
        (np.full((2, 3), np.inf), np.zeros((2, 3, 3)), "finite"),
    ],
)
def test_what_is_no_set_of_beliefs_is_refused(means, covariances, message):
    with pytest.raises(ConfigError, match=message):
        reliability(means, covariances)
