"""Which trial goes on, with which clients, and what is tried next: papers' algorithms, hand-worked cases."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.federated.proposals import Proposals, final_values, gain_of, ranking, sampling_variance
from fbo_flower.federated.records import FederatedTrial as Trial
from fbo_flower.federated.records import TrialRound
from fbo_flower.federated.schedules import (
    ASHA,
    GoOn,
    Hyperband,
    NewTrial,
    SuccessiveHalving,
    ranked,
)
from fbo_flower.federated.tuner import Shares, assignment


def run(schedule, num_trials, places=1, seed=0):
    """Run trials whose value is their number's fixed quality, `places` at a time."""
    quality = np.random.default_rng(seed).permutation(10_000) / 10_000
    trials = []
    while True:
        while sum(t.runs for t in trials) < places:
            choice = schedule.choose(trials)
            if choice is None or (isinstance(choice, NewTrial) and len(trials) == num_trials):
                break
            if isinstance(choice, NewTrial):
                trials.append(Trial(len(trials), {}, np.zeros(1), choice.bracket, target=choice.target))
            else:
                trials[choice.trial] = replace(trials[choice.trial], target=choice.target)
        if not any(t.runs for t in trials):
            return trials
        trials = [t.learn(TrialRound(t.round + 1, quality[t.number])) if t.runs else t for t in trials]


def at(number, value, rounds=1, target=None, failure=""):
    """Return a trial with a value after each of its rounds."""
    done = tuple(TrialRound(r, value) for r in range(1, rounds + 1))
    return Trial(number, {}, np.zeros(1), rounds=done, target=target or max(rounds, 1), failure=failure)


FOUR = [at(0, 0.0), at(1, 0.1), at(2, 0.2), at(3, 0.05)]
CHOICES = {
    "nothing can be promoted": (FOUR[:3], NewTrial(0, 1)),
    "the best of four": (FOUR, GoOn(2, 4)),
    "it runs, and nobody else is among the best quarter": (
        [*FOUR[:2], at(2, 0.2, target=4), FOUR[3]], NewTrial(0, 1)
    ),
    "from the highest rung first": (
        [*(at(i, i / 9, 4) for i in range(4)), *(at(i, i / 90) for i in range(4, 28))], GoOn(3, 16)
    ),
    "one that failed is never promoted": ([*FOUR[:3], at(3, 0.3, failure="diverged")], NewTrial(0, 1)),
    "one that failed at once counts in its rung": ([*FOUR[:3], at(3, 0, 0, 1, "diverged")], GoOn(2, 4)),
}  # fmt: skip


@pytest.mark.parametrize(("trials", "expected"), CHOICES.values(), ids=CHOICES)
def test_asha_promotes_the_best_or_starts_a_trial_and_never_waits(trials, expected):
    assert ASHA(16, 4, 1).choose(trials) == expected


@pytest.mark.parametrize("places", [1, 3])
def test_successive_halving_promotes_exactly_the_best_of_a_complete_rung(places):
    trials = run(SuccessiveHalving(9, 3, 1), 9, places)
    order = [t.number for t in ranked(trials, 1)]
    assert {t.number for t in trials if t.round >= 3} == set(order[:3])
    assert {t.number for t in trials if t.round == 9} == set(order[:1])


def test_hyperband_has_the_brackets_of_its_paper():
    # Table 1 of [Li2018]: R = 81, eta = 3
    schedule = Hyperband(81, 3, 1)
    assert [schedule.num_trials(b) for b in range(5)] == [81, 34, 15, 8, 5]
    assert [schedule.rungs_of(b)[0] for b in range(5)] == [1, 3, 9, 27, 81]
    trials = run(Hyperband(9, 3, 1), 9 + 5 + 3)
    sizes = [Counter(t.round for t in trials if t.bracket == b) for b in range(3)]
    assert sizes == [{1: 6, 3: 2, 9: 1}, {3: 4, 9: 1}, {9: 3}]


def test_a_failed_trial_does_not_stop_a_bracket():
    schedule = SuccessiveHalving(9, 3, 1)
    trials = [*(at(i, i / 10) for i in range(8)), at(8, 0, 0, 1, "diverged")]
    for expected in (7, 6, 5):
        choice = schedule.choose(trials)
        assert choice == GoOn(expected, 3)
        trials[expected] = replace(trials[expected], target=3)
    assert schedule.choose(trials) is None


# the clients of trials that run side by side


def trials(*numbers):
    return [Trial(number, {}, np.zeros(1)) for number in numbers]


def together(shares):
    return sorted(client for share in shares.values() for client in share)


def round_of(shares, running, clients):
    """Do a round, in place, and return who had which clients."""
    found = shares.assign(running, clients)
    for place, trial in enumerate(running):
        done = TrialRound(
            trial.round + 1, 0.0, blocks=sorted({shares.block_of[k] for k in found[trial.number]})
        )
        running[place] = trial.learn(done)
    return found


@pytest.mark.parametrize(("places", "clients"), [(1, 5), (3, 10)])
def test_every_trial_sees_every_client_once_in_as_many_rounds_as_there_are_places(places, clients):
    shares, running = Shares(places, 7), trials(*range(places))
    seen = {trial: [] for trial in range(places)}
    for _ in range(places):
        found = round_of(shares, running, range(clients))
        assert together(found) == list(range(clients))
        assert max(map(len, found.values())) - min(map(len, found.values())) <= 1
        for trial, share in found.items():
            seen[trial] += share
    assert all(sorted(share) == list(range(clients)) for share in seen.values())


def test_the_assignment_is_the_best_of_all():
    rng = np.random.default_rng(5)
    for _ in range(20):
        visits = rng.integers(0, 4, (3, 3))
        cost = sum(visits[trial, block] for trial, block in assignment(visits))
        assert cost == min(sum(visits[t, p[t]] for t in range(3)) for p in permutations(range(3)))


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
    x, y, variances = proposals.observations([*known, pending], (1,))
    assert math.isnan(y[-1])
    alone = proposals.process(x[:-1], y[:-1], variances[:-1])
    # it counts with the surrogate's own mean, so the mean elsewhere stays as it was
    np.testing.assert_allclose(proposals.process(x, y, variances).means[:-1], alone.means, atol=1e-6)
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
