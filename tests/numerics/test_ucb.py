import math

import numpy as np
import pytest

from fbo_flower.numerics import ucb


def test_arms_are_a_random_grid_in_low_dimensions():
    assert ucb.random_arms(1, np.random.default_rng(0)).shape == (20, 1)
    arms = ucb.random_arms(2, np.random.default_rng(0))
    assert arms.shape == (400, 2)
    assert len(np.unique(arms[:, 0])) == len(np.unique(arms[:, 1])) == 20
    assert ucb.random_arms(10, np.random.default_rng(0)).shape == (1000, 10)


def test_fed1_ucb_formulas():
    assert ucb.phase_length(20000) == 100
    radius = ucb.fed1_radius(np.array([100, 200]), 10, 20000)
    np.testing.assert_allclose(radius, np.sqrt(4 * math.log(20000) / np.array([1000, 2000])))
    survivors = ucb.fed1_survivors(np.array([0.9, 0.7, 0.5]), np.full(3, 0.1))
    assert survivors.tolist() == [True, False, False]  # .7 + .1 does not exceed .9 - .1


def test_network_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(0)
    weights, x = rng.standard_normal(20 * 4 + 1), rng.random((7, 2))
    exact = ucb.network_gradients(weights, x, 20)
    for k in range(len(weights)):
        step = np.zeros(len(weights))
        step[k] = 1e-6
        numeric = (ucb.network(weights + step, x, 20) - ucb.network(weights - step, x, 20)) / 2e-6
        np.testing.assert_allclose(exact[:, k], numeric, atol=1e-6)


def neural_run(options, num_pulls=40, num_clients=3, seed=0):
    rng = np.random.default_rng(seed)
    arms = ucb.random_arms(1, rng)
    state = ucb.neural_start(arms, num_clients, options, rng)
    chosen = []
    for t in range(num_pulls):
        arm = ucb.neural_choose(state, t)
        chosen.append(arm)
        ucb.neural_learn(state, t, arm, arms[arm, 0] + 0.01 * rng.standard_normal(num_clients))
    return state, np.array(chosen)


def test_updated_inverses_are_the_inverses_of_what_was_seen():
    never = ucb.NeuralOptions(threshold=math.inf)
    state, chosen = neural_run(never)
    assert state.rounds == 0
    for m in range(3):
        g = state.gradients[chosen[:, m]]
        v = 0.1 * np.eye(g.shape[1]) + g.T @ g
        np.testing.assert_allclose(state.v_inverse[m] @ v, np.eye(len(v)), atol=1e-6)
        np.testing.assert_allclose(state.own[m], v)
        growth = np.linalg.slogdet(v)[1] - len(v) * math.log(0.1)
        assert state.log_growth[m] == pytest.approx(growth)


def test_an_exchange_gives_every_client_the_sums_of_all():
    state, chosen = neural_run(ucb.NeuralOptions(threshold=0.0))
    assert state.rounds >= 39
    assert state.floats_up == state.floats_down > 0
    g = state.gradients[chosen.ravel()]
    v = 0.1 * np.eye(g.shape[1]) + g.T @ g
    for m in range(3):
        np.testing.assert_allclose(state.v_inverse[m] @ v, np.eye(len(v)), atol=1e-6)
        np.testing.assert_allclose(state.response[m], state.response[0])


def test_fn_ucb_finds_the_better_arms():
    state, chosen = neural_run(ucb.NeuralOptions(), num_pulls=150)
    late = state.arms[chosen[-30:], 0].mean()
    assert late > np.quantile(state.arms[:, 0], 0.8)  # uniform choice would give about .5


def test_the_weight_of_the_networks_grows_from_0_to_1():
    options = ucb.NeuralOptions()
    assert [options.alpha(t) for t in (0, 3, 353, 703, 5000)] == [0.0, 0.0, 0.5, 1.0, 1.0]
