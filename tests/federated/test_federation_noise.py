from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fbo_flower.federated.records import Trial, TrialRound
from fbo_flower.federated.values import final_values, gain_of, sampling_variance


def test_with_equal_weights_the_variance_is_unbiased_over_all_samples() -> None:
    values, n = np.array([0.1, 0.4, 0.5, 0.9, 0.95, 0.2, 0.6]), 3
    samples = [values[list(rows)] for rows in itertools.combinations(range(len(values)), n)]
    true = np.var([sample.mean() for sample in samples])
    estimates = [sampling_variance(sample, np.ones(n), len(values)) for sample in samples]
    assert np.mean(estimates) == pytest.approx(true, rel=1e-12)


def test_with_unequal_weights_the_variance_is_close_to_that_over_all_samples() -> None:
    rng = np.random.default_rng(3)
    values, weights, n = rng.random(16), rng.integers(20, 60, 16).astype(float), 8
    rows = [list(r) for r in itertools.combinations(range(16), n)]
    true = np.var([np.average(values[r], weights=weights[r]) for r in rows])
    estimates = [sampling_variance(values[r], weights[r], 16) for r in rows]
    assert np.mean(estimates) == pytest.approx(true, rel=0.1)


def test_all_clients_leave_no_variance_and_one_alone_tells_nothing() -> None:
    assert sampling_variance(np.array([0.1, 0.9]), np.ones(2), 2) == 0.0
    assert math.isnan(sampling_variance(np.array([0.1]), np.ones(1), 2))


def trial(number: int, *values: float, variance: float = 0.0, failure: str = "") -> Trial:
    rounds = tuple(TrialRound(i + 1, value, variance) for i, value in enumerate(values))
    return Trial(number, {}, np.zeros(1), rounds=rounds, target=len(rounds), failure=failure)


def test_a_stopped_trial_is_moved_by_the_mean_gain_of_those_that_went_on() -> None:
    trials = [trial(0, 0.5, 0.7), trial(1, 0.4, 0.8), trial(2, 0.3, variance=0.01)]
    values, variances = final_values(trials, (1, 2))
    np.testing.assert_allclose(values, [0.7, 0.8, 0.3 + 0.3])
    # gains 0.2 and 0.4: (0.3^2 / 4 + 0.02) / 2, and half of it again for the mean of two
    np.testing.assert_allclose(variances, [0.0, 0.0, 0.01 + (0.0225 + 0.02) / 2 * 1.5])


def test_gains_add_up_rung_by_rung() -> None:
    trials = [trial(0, 0.1, 0.3, 0.4), trial(1, 0.2, 0.6), trial(2, 0.0)]
    values, _ = final_values(trials, (1, 2, 3))
    np.testing.assert_allclose(values, [0.4, 0.6 + 0.1, 0.0 + 0.3 + 0.1])


def test_nobody_has_gone_on_so_nothing_is_added() -> None:
    values, variances = final_values([trial(0, 0.5), trial(1, 0.2)], (1, 4, 16))
    assert values.tolist() == [0.5, 0.2]
    assert variances.tolist() == [0.0, 0.0]
    assert gain_of([], 1, 4) == (0.0, 0.0)


def test_failed_trials_and_those_without_a_round_have_no_value() -> None:
    values, variances = final_values([trial(0, 0.5, failure="diverged"), trial(1), trial(2, 0.1)], (1,))
    assert np.isnan(values[:2]).all()
    assert values[2] == 0.1
    assert (variances == 0.0).all()


def test_an_unknown_variance_is_taken_to_be_the_largest_known_one() -> None:
    trials = [trial(0, 0.5, variance=0.02), trial(1, 0.4, variance=math.nan)]
    assert final_values(trials, (1,))[1].tolist() == [0.02, 0.02]
