"""FN-UCB of all clients together against a plain version."""

import math

import numpy as np
import pytest

from fbo_flower.numerics.bandits import ucb
from studies.papers.pne import reference
from studies.papers.pne.reference import NeuralClients


def neural_run(options, num_pulls=40, num_clients=3, seed=0):
    rng = np.random.default_rng(seed)
    arms = ucb.random_arms(1, rng)
    state = NeuralClients(arms, num_clients, options, rng)
    chosen = []
    for t in range(num_pulls):
        arm = state.choose(t)
        chosen.append(arm)
        state.learn(t, arm, arms[arm, 0] + 0.01 * rng.standard_normal(num_clients))
    return state, np.array(chosen)


def plain_choices(options, num_pulls, num_clients=3, seed=0):
    """FN-UCB as the papers write it: every matrix inverted anew, every network trained alone."""
    rng = np.random.default_rng(seed)
    arms = ucb.random_arms(1, rng)
    state = NeuralClients(arms, num_clients, options, rng)
    g, lam = state.features.gradients, options.regulariser
    identity = np.eye(g.shape[1])
    pulls = [[] for _ in range(num_clients)]  # (arm, reward) of each client
    met, last = 0, -1  # pulls of each client that all know of, and when they last met
    weights = [state.weights.copy() for _ in range(num_clients)]
    mean_weights, average, chosen = state.weights, identity / lam, []
    for t in range(num_pulls):
        alpha, choice = options.alpha(t), []
        for own in pulls:
            known = [pull for other in pulls for pull in other[:met]] + own[met:]
            arm, reward = np.array([a for a, _ in known], dtype=int), np.array([r for _, r in known])
            inverse = np.linalg.inv(lam * identity + g[arm].T @ g[arm])
            spread = [np.sqrt(lam * np.diag(g @ v @ g.T)) for v in (inverse, average)]
            bound_a = g @ inverse @ g[arm].T @ reward + options.nu_a * spread[0]
            bound_b = ucb.network(mean_weights, arms, options.width) + options.nu_b * spread[1]
            choice.append(int(np.argmax((1 - alpha) * bound_a + (alpha * bound_b if alpha else 0.0))))
        chosen.append(choice)
        rewards = arms[choice, 0] + 0.01 * rng.standard_normal(num_clients)
        for own, arm, reward in zip(pulls, choice, rewards, strict=True):
            own.append((arm, reward))
        grown = []
        for own in pulls:
            before = [a for other in pulls for a, _ in other[:met]]
            after = before + [a for a, _ in own[met:]]
            dets = [np.linalg.slogdet(lam * identity + g[a].T @ g[a])[1] for a in (before, after)]
            grown.append(dets[1] - dets[0])
        if any((t - last) * growth > options.threshold for growth in grown):
            met, last = t + 1, t
            if options.alpha(t + 1) > 0:
                own = [g[[a for a, _ in pull]] for pull in pulls]
                average = np.mean([np.linalg.inv(lam * identity + x.T @ x) for x in own], axis=0)
                weights = [
                    plain_steps(w, arms, pull, options) for w, pull in zip(weights, pulls, strict=True)
                ]
                mean_weights = np.mean(weights, axis=0)
    return np.array(chosen), mean_weights, average


def plain_steps(weights, arms, pulls, options):
    """Gradient steps on the mean squared error over arms, each with its mean reward and its count."""
    arm, reward = np.array([a for a, _ in pulls]), np.array([r for _, r in pulls])
    seen = np.unique(arm)
    y, n = np.array([reward[arm == a].mean() for a in seen]), np.array([(arm == a).sum() for a in seen])
    for _ in range(options.train_steps):
        residual = n * (ucb.network(weights, arms[seen], options.width) - y)
        slope = 2 * residual @ ucb.network_gradients(weights, arms[seen], options.width) / n.sum()
        weights = weights - options.learning_rate * (slope + options.regulariser / n.sum() * weights)
    return weights


@pytest.mark.parametrize("threshold", [0.0, 6.0, math.inf])
def test_choices_are_those_of_matrices_inverted_anew_and_networks_trained_alone(threshold, monkeypatch):
    monkeypatch.setattr(reference, "REFRESH", 1000)  # updated inverses alone
    options = ucb.NeuralOptions(threshold=threshold, mix_until=40, nu_a=2.0, nu_b=2.0)
    state, chosen = neural_run(options, num_pulls=60)
    plain, weights, average = plain_choices(options, 60)
    assert len(np.unique(chosen)) >= 5
    assert (threshold == 0.0, threshold == math.inf) == (state.rounds >= 40, state.rounds == 0)
    np.testing.assert_array_equal(chosen, plain)
    np.testing.assert_allclose(state.weights, weights, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.average_inverse, average, rtol=1e-6, atol=1e-9)


def test_updated_inverses_stay_exact_over_many_pulls():
    state, _ = neural_run(ucb.NeuralOptions(train_steps=1), num_pulls=250)
    np.testing.assert_allclose(state.own_inverse, np.linalg.inv(state.own), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(state.average_inverse, np.linalg.inv(state.own).mean(axis=0), atol=1e-8)
