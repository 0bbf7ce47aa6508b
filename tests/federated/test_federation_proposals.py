import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.federated.proposals import Proposals, final_values, gain_of, ranking, sampling_variance
from fbo_flower.federated.records import FederatedTrial as Trial
from fbo_flower.federated.records import TrialRound

SPACE = SearchSpace({"x": Float(0, 1), "n": Int(1, 4)})


def trial(number, point, *values, variance=0.0, failure=""):
    snapped = SPACE.snap([point])[0]
    rounds = tuple(TrialRound(i + 1, value, variance) for i, value in enumerate(values))
    return Trial(number, SPACE.decode(snapped), snapped, rounds=rounds, target=len(values), failure=failure)


def curve(number, *values, variance=0.0, failure=""):
    return trial(number, [0.5, 0.5], *values, variance=variance, failure=failure)


def parabola(count, variance=0.0):
    rng = np.random.default_rng(2)
    points = rng.random((count, 2))
    return [trial(i, p.tolist(), -((p[0] - 0.3) ** 2), variance=variance) for i, p in enumerate(points)]


def test_the_first_trials_are_random_and_repeat():
    proposals = Proposals(SPACE, "ei", 4, 0)
    failed = [trial(i, [0.1 * i, 0.5], failure="x") for i in range(5)]
    for known in ([], failed):
        assert (proposals.propose(known, (1,)) == Proposals(SPACE, "random", 4, 0).propose(known, (1,))).all()
    first = proposals.propose([], (1,))
    np.testing.assert_array_equal(first, SPACE.snap(first[None])[0])
    assert (first != Proposals(SPACE, "ei", 4, 1).propose([], (1,))).any()


def test_later_trials_are_where_improvement_is_expected():
    point = Proposals(SPACE, "ei", 4, 0).propose(parabola(12), (1,))
    assert abs(point[0] - 0.3) < 0.1


def test_a_trial_without_a_value_is_not_proposed_twice():
    proposals, known = Proposals(SPACE, "ei", 4, 0), parabola(12)
    first = proposals.propose(known, (1,))
    pending = trial(12, first.tolist())
    observed = proposals.observations([*known, pending], (1,))
    x, y, variances = observed
    assert math.isnan(y[-1])
    process = proposals.process(x, y, variances)
    alone = proposals.process(x[:-1], y[:-1], variances[:-1])
    # it counts with the surrogate's own mean, so the mean elsewhere stays as it was
    np.testing.assert_allclose(process.means[:-1], alone.means, atol=1e-6)
    second = proposals.propose([*known, pending], (1,))
    assert np.abs(second - first).max() > 1e-3


def test_failed_trials_count_as_the_worst_one():
    proposals = Proposals(SPACE, "ei", 2, 0)
    trials = [*parabola(4), trial(4, [0.9, 0.1], failure="diverged")]
    observed = proposals.observations(trials, (1,))
    assert observed[1][-1] == observed[1].min()


def test_the_unit_of_the_metric_does_not_matter():
    proposals = Proposals(SPACE, "ei", 2, 0)
    known = parabola(8)
    scaled = [
        [trial(t.number, t.point.tolist(), unit * t.value, variance=unit**2 * 0.01) for t in known]
        for unit in (1.0, 10.0)
    ]
    one, other = (proposals.observations(trials, (1,)) for trials in scaled)
    assert (one[2] > 0.01).all()  # standardised values are wider
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)


def test_a_lucky_noisy_trial_is_not_the_best_one():
    known = parabola(20, variance=1e-6)
    lucky = trial(20, [0.95, 0.5], 0.05, variance=1.0)  # far from the optimum, and hardly known
    assert ranking([*known, lucky])[0].number == 20
    best = ranking([*known, lucky], Proposals(SPACE, "ei", 4, 0), (1,))[0]
    assert abs(best.point[0] - 0.3) < 0.1


def test_more_rounds_come_first_and_finalists_before_all():
    trials = [trial(0, [0.1, 0.1], 0.9), trial(1, [0.2, 0.1], 0.1, 0.5), trial(2, [0.3, 0.1], 0.1, 0.6)]
    assert [t.number for t in ranking(trials)] == [2, 1, 0]
    trials[1] = replace(trials[1], judged=0.2)
    assert [t.number for t in ranking(trials)] == [1, 2, 0]


# the noise of a value


def test_with_equal_weights_the_variance_is_unbiased_over_all_samples():
    values, n = np.array([0.1, 0.4, 0.5, 0.9, 0.95, 0.2, 0.6]), 3
    samples = [values[list(rows)] for rows in itertools.combinations(range(len(values)), n)]
    true = np.var([sample.mean() for sample in samples])
    estimates = [sampling_variance(sample, np.ones(n), len(values)) for sample in samples]
    assert np.mean(estimates) == pytest.approx(true, rel=1e-12)


def test_with_unequal_weights_the_variance_is_close_to_that_over_all_samples():
    rng = np.random.default_rng(3)
    values, weights, n = rng.random(16), rng.integers(20, 60, 16).astype(float), 8
    rows = [list(r) for r in itertools.combinations(range(16), n)]
    true = np.var([np.average(values[r], weights=weights[r]) for r in rows])
    estimates = [sampling_variance(values[r], weights[r], 16) for r in rows]
    assert np.mean(estimates) == pytest.approx(true, rel=0.1)


NAN = math.nan
FINAL = {
    # gains 0.2 and 0.4: (0.3^2 / 4 + 0.02) / 2, and half of it again for the mean of two
    "moved by the mean gain of those that went on": (
        [curve(0, 0.5, 0.7), curve(1, 0.4, 0.8), curve(2, 0.3, variance=0.01)],
        [0.7, 0.8, 0.3 + 0.3], [0.0, 0.0, 0.01 + (0.0225 + 0.02) / 2 * 1.5],
    ),
    "gains add up rung by rung": (
        [curve(0, 0.1, 0.3, 0.4), curve(1, 0.2, 0.6), curve(2, 0.0)], [0.4, 0.6 + 0.1, 0.0 + 0.3 + 0.1], None
    ),
    "nobody has gone on": ([curve(0, 0.5), curve(1, 0.2)], [0.5, 0.2], [0.0, 0.0]),
    "a failure and no round have no value": (
        [curve(0, 0.5, failure="diverged"), curve(1), curve(2, 0.1)], [NAN, NAN, 0.1], [0.0] * 3
    ),
    "an unknown variance is the largest known one": (
        [curve(0, 0.5, variance=0.02), curve(1, 0.4, variance=NAN)], [0.5, 0.4], [0.02, 0.02]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("trials", "values", "variances"), FINAL.values(), ids=FINAL)
def test_a_trial_that_was_stopped_has_an_expected_final_value_with_a_variance(trials, values, variances):
    found = final_values(trials, (1, 2, 3))
    np.testing.assert_allclose(found[0], values)
    if variances is not None:
        np.testing.assert_allclose(found[1], variances)
    assert gain_of([], 1, 4) == (0.0, 0.0)
